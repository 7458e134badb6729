"""What the docs site needs beyond mkdocs: pages from outside of docs/, and formulas without JavaScript."""

import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
OUTSIDE = (
    "results/*.md",
    "results/*.png",
    "results/*.csv",
    "results/evidence/*",
    "benchmarks/README.md",
    "examples/*",
    "CHANGELOG.md",
)
OUTSIDE += ("CONTRIBUTING.md", "LICENSE")


def on_files(files, config):
    """Add the pages and data that docs/ links to, at their places below the root of the repository."""
    for path in sorted(path for pattern in OUTSIDE for path in ROOT.glob(pattern) if path.is_file()):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links as they are right in the repository, where docs/ is a folder beside the others."""
    here = Path(page.file.src_uri)
    if page.file.generated_by:
        return re.sub(r"\]\((?:\.\./)*docs/", "](" + "../" * len(here.parent.parts), markdown)
    up = "../" * len(here.parts)
    markdown = markdown.replace(f"]({up}", "](" + "../" * len(here.parent.parts))
    return re.sub(r"\]\(((?:\.\./)*)methods\)", r"](\1methods/oht.md)", markdown)


def on_page_content(html, page, config, files):
    """Formulas as MathML, which browsers draw by themselves."""

    def formula(match: re.Match) -> str:
        text = match[2].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return convert(text, display="block" if match[1] == "[" else "inline")

    return re.sub(
        r'<(?:span|div) class="arithmatex">\\([\[(])(.*?)\\[\])]</(?:span|div)>', formula, html, flags=re.DOTALL
    )
