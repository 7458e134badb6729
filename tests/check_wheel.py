"""Build a wheel, install it into an empty venv and train with it; part of `make nightly`."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TINY = [*("--steps", "300", "--start-steps", "100", "--eval-every", "100", "--eval-episodes", "1"), "--hidden", "8,8"]
COMMANDS = [
    ["--help"],
    ["--version"],
    ["tasks"],
    ["suites"],  # reads the files of the package
    ["train", "Pendulum-v1", *TINY, "--out", "run"],
    ["eval", "run", "--episodes", "1"],
    ["plot", "run"],
]


def built(folder: Path) -> Path:
    """The wheel, built from a source distribution of the files that git knows, so that nothing is left in the tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
    command = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(folder / "source")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"python -m build failed:\n{ended.stdout}{ended.stderr}")
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> int:
    """The wheel holds every file of the package and, beside its own facts, nothing else; returns their number."""
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "oht").rglob("*")}
    package = {name for name in package if (ROOT / "src" / name).is_file() and "__pycache__" not in name}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if missing := sorted(package - names):
        raise SystemExit(f"{wheel.name} lacks {', '.join(missing)}.")
    if foreign := sorted(names - package):
        raise SystemExit(f"{wheel.name} should not contain {', '.join(foreign)}.")
    return len(names)


def installed(folder: Path, wheel: Path) -> Path:
    """The programs of a new venv that has only the wheel and what it needs."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    pip = [str(programs / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True)
    subprocess.run([*pip, "check"], check=True)
    return programs


def run_commands(folder: Path, programs: Path) -> None:
    """Every command from an empty folder, without this tree on the search path."""
    (folder / "empty").mkdir()
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**mine, "OHT_CACHE": str(folder / "cache")}
    for words in COMMANDS:
        command = [str(programs / "oht"), *words]
        ended = subprocess.run(
            command, cwd=folder / "empty", env=environment, capture_output=True, text=True, check=False
        )
        if ended.returncode or not ended.stdout.strip():
            raise SystemExit(
                f"oht {' '.join(words)} ended with exit code {ended.returncode}:\n{ended.stdout}{ended.stderr}"
            )
        print(f"oht {' '.join(words)}: fine")
    last = (folder / "empty" / "run" / "metrics.csv").read_text().splitlines()[-1]
    if int(last.split(",")[1]) < 300:
        raise SystemExit(f"the run ended too early: {last}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="oht-wheel-") as name:
        folder = Path(name)
        wheel = built(folder)
        print(f"{wheel.name}: {check_contents(wheel)} files, as in src/oht")
        run_commands(folder, installed(folder, wheel))


if __name__ == "__main__":
    main()
