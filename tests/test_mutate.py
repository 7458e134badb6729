"""The mutation tester: which modules it knows, what it changes, and that it sees what tests see."""

import ast

import pytest

import mutate


def test_every_tuner_and_agent_has_its_tests():
    folders = [path.relative_to(mutate.PACKAGE).as_posix() for name in ("tuners", "agents") for path in _code(name)]
    assert {*folders, "replay.py", "population.py", "training.py"} <= mutate.TESTS.keys()
    for module in mutate.TESTS:
        for file, _, name in mutate.named(module):
            code = (mutate.ROOT / "tests" / f"{file}.py").read_text()
            assert f"def {name.partition('[')[0]}" in code


def test_what_is_left_out_is_a_test():
    code = "".join(path.read_text() for path in (mutate.ROOT / "tests").glob("test_*.py"))
    for name in mutate.LEFT_OUT:
        assert f"def {name}(" in code


def _code(folder: str):
    return (path for path in (mutate.PACKAGE / folder).glob("*.py") if len(path.read_text()) > 200)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a + b", {"a - b"}),
        ("a < b <= c", {"a <= b <= c", "a < b < c"}),
        ("not a", {"a"}),
        ("f(a)", {"a"}),
        ("float(a)", set()),
        ("np.int32(a)", set()),
        ("zip(a, b, strict=True)", set()),
        ("jnp.mean(a, 0)", {"jnp.sum(a, 0)", "jnp.mean(a, 1)"}),
        ("a if b else c", {"a if True else c", "a if False else c"}),
        ("a and b", {"a or b"}),
        ("True", {"False"}),
        ("f'{a + b}'", set()),
        ("'text'", set()),
    ],
)
def test_what_is_changed(before, after, tmp_path, monkeypatch):
    monkeypatch.setattr(mutate, "PACKAGE", tmp_path)
    code = "@jit(1)\ndef f(x: Literal[1] = None) -> Literal[2]:\n    {}\n    raise Error(1 + 2)"
    (tmp_path / "module.py").write_text(code.format(f"return {before}"))
    trees = [ast.unparse(mutate.mutated(mutant)) for mutant in mutate.mutants("module.py")]
    assert sorted(trees) == sorted(ast.unparse(ast.parse(code.format(f"return {text}"))) for text in after)


def test_mutants_of_the_package_differ_from_it():
    module = "tuners/static.py"
    original = ast.unparse(ast.parse((mutate.PACKAGE / module).read_text()))
    trees = [ast.unparse(mutate.mutated(mutant)) for mutant in mutate.mutants(module)]
    assert len({original, *trees}) == len(trees) + 1
