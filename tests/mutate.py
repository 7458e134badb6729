"""Mutation testing: change the code in one place, run the tests that belong to it, and see whether one fails.

    python tests/mutate.py                                  all modules
    python tests/mutate.py replay.py tuners/ --sample 5     five random mutants of each of these
    python tests/mutate.py --list replay.py                 only show them

Why no existing tool: mutmut leaves out every function with a decorator, and here that is all that is compiled
(`@jax.jit`) and all networks (`@nn.compact`); cosmic-ray starts a new interpreter for each mutant, and importing JAX
and Gymnasium alone takes longer than most of the tests. Here one process imports what is slow but nothing of oht, and
forks for each mutant; JAX starts its threads only when it first computes, which is after the fork.

Results are kept in build/mutants.jsonl, so that a second call continues; a module that has changed is tested anew, and
`--again` forgets the survivors, to see whether new tests kill them. Survivors that no test can or should kill are
listed in tests/accepted_mutants.txt with a reason and count as accepted.
"""

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "oht"
RESULTS = ROOT / "build" / "mutants.jsonl"
ACCEPTED = ROOT / "tests" / "accepted_mutants.txt"
# Tests of each module, the quickest and most direct first: pytest stops at the first failure.
PEERS = "test_peers_updates::test_updates_equal_the_peers"
AGENTS = [
    "algorithms_are_found_by_name",
    "options_are_the_arguments_by_name",
    "what_is_no_algorithm_is_refused",
]
NETWORKS = [
    "targets_follow_by_tau",
    "networks_have_no_layer_norm_unless_asked_for",
    "first_weights_are_uniform_within_one_by_the_root_of_the_inputs",
    "steps_of_adam_by_numpy",
    "log_std_is_kept_within_bounds",
    "networks_compute_what_numpy_computes",
]
METAGRAD = [
    "what_it_cannot_do",
    "first_steps_have_the_given_sizes",
    "the_trace_keeps_a_share_of_earlier_slopes",
    "rates_stay_within_their_bounds",
    "the_agent_inside_learns_as_it_would_alone",
    "the_judge_learns_from_other_rows_and_another_start",
    "the_judges_target_follows_its_critic",
    "the_meta_gradient_is_the_finite_difference_of_the_whole_update",
]
NORMALISED = [
    "moments_of_observations",
    "a_normalised_agent_sees_standardised_observations",
    "moments_of_many_batches_are_those_of_all_rows",
]
POPULATION = [
    "a_population_has_a_leading_axis",
    "agents_are_copied_and_made_new",
    "what_act_does_not_read_is_zero",
    "the_start_is_compiled_with_few_optimisations",
    "learning_is_traced_once_though_its_metrics_were_asked_for",
    "agents_that_train_alone_are_copied_only_once",
    "acting_is_compiled_once_and_its_keys_are_made_for_many_steps",
    "metrics_are_means_over_all_gradient_steps",
    "progress_is_reported_after_2000_gradient_steps",
    "similar_n_steps_share_a_program",
    "a_program_is_compiled_before_agents_learn_in_threads",
    "agents_learn_from_their_own_rings",
    "policies_act_by_row_and_repeat",
    "acting_reads_only_what_act_reads_and_gives_the_same_actions",
]
SAC = [
    "hyper_of_each_algorithm",
    "log_probability_of_a_squashed_gaussian",
    "log_probability_stays_finite_far_out",
    "sac_acts_by_the_mean_and_explores_by_the_deviation",
    "losses_of_known_networks[sac with fixed alpha]",
]
TD3 = [
    "hyper_of_each_algorithm",
    "exploration_adds_noise_and_stays_in_the_range",
    "target_actions_are_smoothed_and_stay_in_their_range",
    "losses_of_known_networks[td3]",
]
TRAINING = [
    "they_play_with_noise_exactly_if_the_proposal_says_so",
    "evaluation_is_without_noise_and_draws_a_champion_for_each_episode",
    "random_actions_cover_their_range",
]
TESTS: dict[str, list[str]] = {
    "tuners/arms.py": ["test_tuners"],
    "tuners/cemrl.py": ["test_tuners", "test_cemrl"],
    "tuners/columns.py": ["test_tuners"],
    "tuners/meta_gradient.py": ["test_tuners"],
    "tuners/pbt.py": ["test_pbt", "test_tuners"],
    "tuners/race.py": ["test_tuners"],
    "tuners/random.py": ["test_tuners"],
    "tuners/sampled.py": ["test_tuners"],
    "tuners/schedule.py": ["test_tuners"],
    "tuners/search.py": ["test_search", "test_tuners"],
    "tuners/static.py": ["test_tuners"],
    "replay.py": ["test_replay"],
    "agents/__init__.py": [f"test_agents::test_{name}" for name in AGENTS],
    "agents/ddpg.py": ["test_agents::test_hyper_of_each_algorithm", f"{PEERS}[sb3_ddpg]"],
    "agents/metagrad.py": [f"test_metagrad::test_{name}" for name in METAGRAD],
    "agents/networks.py": [f"test_agents::test_{name}" for name in NETWORKS],
    "agents/normalise.py": [f"test_agents::test_{name}" for name in NORMALISED],
    "agents/sac.py": [f"test_agents::test_{name}" for name in SAC] + [f"{PEERS}[sb3_sac]", f"{PEERS}[sb3_sac_fixed]"],
    "agents/td3.py": [f"test_agents::test_{name}" for name in TD3] + [f"{PEERS}[sb3_td3]", f"{PEERS}[sb3_ddpg]"],
    "agents/uniform.py": ["test_uniform"],
    "population.py": [f"test_population::test_{name}" for name in POPULATION],
    "training.py": ["test_iterations", *(f"test_training::test_{name}" for name in TRAINING)],
}
# Tests of tuners that take seconds, because they train agents, compile or repeat a race many times: quicker tests must
# notice what they would.
LEFT_OUT = (
    "test_tuners_are_numpy_only",
    "test_agents_that_dip_before_they_learn_are_not_starved",
    "test_a_leader_that_stops_improving_is_overtaken",
    "test_a_leader_that_improves_keeps_the_gradient_steps",
    "test_play_and_gradient_steps_go_to_the_best_within_the_budget",
    "test_returns_that_are_noise_move_nothing_for_good",
    "test_arms_find_the_best_in_every_dimension",
    "test_noise_seldom_decides_and_a_clear_lead_does",
    "test_noise_does_not_carry_the_learning_rate_away",
    "test_eqn_3_in_sigmas_does_not_depend_on_sigma",
    "test_score_gradient_is_the_gradient_of_the_expected_fitness",
    "test_cem_drifts_without_a_signal_and_climbs_with_one",
    "test_each_agent_lives_from_its_own_episodes_unless_shared",
    "test_the_population_ends_where_learning_works",
    "test_sepcem_by_hand",
    "test_actors_are_drawn_and_start_anew",
    "test_those_who_learn_share_one_critic",
    "test_the_shared_targets_follow_their_networks",
    "test_plain_cem_solves_a_probe",
    "test_actor_steps_are_the_env_steps_of_the_generation_before",
)
IMPORTED_ONCE = ("jax", "jax.numpy", "flax.linen", "optax", "gymnasium", "hypothesis", "pytest", "scipy.stats", "rich")


# What is changed

SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
OPPOSITES = [
    *(("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"), ("zeros", "ones"), ("sin", "cos")),
    *(("zeros_like", "ones_like"), ("mean", "sum"), ("std", "var"), ("exp", "log"), ("floor", "ceil")),
]
RENAMED = {**dict(OPPOSITES), **{b: a for a, b in OPPOSITES}}
LIBRARIES = {"", "jnp", "np", "jax", "jax.lax", "jax.nn", "nn", "optax", "math"}  # others own methods: x.astype(int)
CONVERSIONS = {
    *("int", "float", "bool", "str", "list", "tuple", "dict", "set", "sorted", "asarray", "array", "partial"),
    *("int8", "int32", "float32", "float64"),
}


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may stand in the place of this one."""

    def changed(**fields: Any) -> ast.AST:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPS:
            yield changed(op=SWAPS[type(op)]())
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                yield changed(ops=[*ops[:i], SWAPS[type(op)](), *ops[i + 1 :]])
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield changed(value=not value)
        case ast.Constant(value=int() | float() as value):
            yield changed(value=value + 1)
        case ast.If() | ast.IfExp():
            yield changed(test=ast.Constant(True))
            yield changed(test=ast.Constant(False))
        case ast.Call(func=ast.Name(id=name)) if name in RENAMED:
            yield changed(func=ast.Name(RENAMED[name], ast.Load()))
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in RENAMED:
            yield changed(func=ast.Attribute(owner, RENAMED[name], ast.Load()))
        case ast.Call(func=function, args=[ast.expr() as only], keywords=[]):
            owner, _, name = ast.unparse(function).rpartition(".")
            if owner in LIBRARIES and name not in CONVERSIONS and not isinstance(only, ast.Starred):
                yield only
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()


class Mutant(NamedTuple):
    module: str  # below src/oht
    place: int  # which node, in the order of ast.walk, and which of its variants
    variant: int
    line: int
    where: str  # the function or class
    before: str
    after: str

    def sentence(self) -> str:
        """What is changed, without the line number: how accepted mutants are named."""
        return f"{self.module} | {self.where} | {self.before} -> {self.after}"


def mutants(module: str) -> list[Mutant]:
    """All mutants of a module; left out: messages, annotations, decorators, what only type checkers see."""
    tree = ast.parse((PACKAGE / module).read_text())
    ignored, names = _ignored(tree), _names(tree)
    found = []
    for place, node in enumerate(ast.walk(tree)):
        if id(node) not in ignored:
            for number, other in enumerate(variants(node)):
                shown = [_shown(each) for each in (node, other)]
                found.append(Mutant(module, place, number, getattr(node, "lineno", 0), names[id(node)], *shown))
    return sorted(found, key=lambda mutant: mutant.line)


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 100 else text[:100] + "..."


def _ignored(tree: ast.AST) -> set[int]:
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                roots += node.decorator_list
                roots += [node.returns] if isinstance(node, ast.FunctionDef) else node.bases
            case ast.arg() | ast.AnnAssign():
                roots.append(node.annotation)
            case ast.keyword(arg="strict"):  # of zip: an assertion
                roots.append(node)
            case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
                roots.append(node)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                roots.append(node)
    return {id(below) for root in roots if root for below in ast.walk(root)}


def _names(tree: ast.AST) -> dict[int, str]:
    """The function or class that each node is in."""
    names: dict[int, str] = {}

    def visit(node: ast.AST, name: str) -> None:
        names[id(node)] = name
        inner = f"{name}.{node.name}".strip(".") if isinstance(node, ast.FunctionDef | ast.ClassDef) else name
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(tree, "")
    return names


def mutated(mutant: Mutant) -> ast.Module:
    """The tree of the module with this mutant in it."""
    tree = ast.parse((PACKAGE / mutant.module).read_text())
    nodes = list(ast.walk(tree))
    old = nodes[mutant.place]
    new = ast.copy_location(list(variants(old))[mutant.variant], old)
    for parent in nodes:
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if item is old else item for item in value]
    return ast.fix_missing_locations(tree)


# How it is tested


class Changed(SourceFileLoader):
    """Loads one module from another tree, and none from compiled files."""

    def __init__(self, name: str, path: Path, tree: ast.Module):
        super().__init__(name, str(path))
        self._tree = tree

    def get_code(self, fullname: str) -> Any:
        return compile(self._tree, self.path, "exec")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        inside = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return spec_from_file_location(name, self.path, loader=self, submodule_search_locations=inside)


class Test(NamedTuple):
    verdict: str
    seconds: float  # of the processor
    wall: float


def run_tests(module: str, tree: ast.Module, folder: Path, usual: Test | None) -> Test:
    """Run the module's tests with this tree in its place, in a fork; far more time than usual counts as hanging."""
    wall = 0.0  # without the time that this process itself is stopped
    child = os.fork()
    if child == 0:
        os.setsid()
        if usual:
            most = round(20 + 5 * usual.seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
        _tests_in_child(module, tree, folder)
    hanging = False
    while True:
        ended, status, used = os.wait4(child, 0 if hanging else os.WNOHANG)
        if ended:
            break
        if usual and wall > 60 + 10 * usual.wall:  # a deadlock uses no processor
            hanging = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.05)
        wall += 0.05
    code = os.waitstatus_to_exitcode(status)
    verdict = {0: "survived", 1: "killed", -signal.SIGXCPU: "timed out"}.get(code, "crashed")
    return Test("timed out" if hanging else verdict, used.ru_utime + used.ru_stime, wall)


def named(module: str) -> list[tuple[str, str, str]]:
    """The tests of a module: the file, and after two colons the test, where not all are meant."""
    return [test.partition("::") for test in TESTS[module]]


def _tests_in_child(module: str, tree: ast.Module, folder: Path) -> None:
    import hypothesis
    import pytest

    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 4
    try:
        name = ".".join(["oht", *Path(module).with_suffix("").parts]).removesuffix(".__init__")
        sys.meta_path.insert(0, Changed(name, PACKAGE / module, tree))  # pyright: ignore[reportArgumentType]
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]  # not the search for a smaller example
        hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True, database=None, phases=phases)
        hypothesis.settings.load_profile("mutants")
        files = [f"{ROOT / 'tests' / file}.py{colons}{name}" for file, colons, name in named(module)]
        options = [
            "-x",
            "-q",
            "-m",
            "not slow",
            "-k",
            f"not ({' or '.join(LEFT_OUT)})",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--assert=plain",
            "--tb=line",
        ]
        code = int(pytest.main([*options, f"--rootdir={ROOT}", f"--basetemp={folder / 'test'}", *files]))
        code = 1 if code == 2 else code  # the mutant cannot even be imported
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def results() -> dict[str, dict[str, Any]]:
    """Earlier results by the key of the mutant."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {entry["key"]: entry for entry in map(json.loads, lines)}


def key(mutant: Mutant) -> str:
    source = hashlib.blake2b((PACKAGE / mutant.module).read_bytes(), digest_size=8).hexdigest()
    return f"{mutant.module} {source} {mutant.place} {mutant.after}"


def accepted() -> dict[str, str]:
    """Sentences of accepted mutants, and why."""
    lines = ACCEPTED.read_text().splitlines() if ACCEPTED.exists() else []
    parts = (line.rpartition(" | ") for line in lines if line and not line.startswith("#"))
    return {sentence: reason for sentence, _, reason in parts}


def test_module(module: str, chosen: list[Mutant], folder: Path) -> None:
    """Test the mutants of a module that have no result yet; each result is written at once."""
    known = results()
    left = [mutant for mutant in chosen if key(mutant) not in known]
    if not left:
        return
    healthy = ast.parse((PACKAGE / module).read_text())
    run_tests(module, healthy, folder, None)  # compiles; the second time is as every mutant runs
    usual = run_tests(module, healthy, folder, None)
    if usual.verdict != "survived":
        output = (folder / "output.txt").read_text()
        raise SystemExit(f"the tests of {module} fail without a mutant ({usual.verdict}):\n{output}")
    print(f"{module}: {len(left)} mutants, the tests take {usual.seconds:.1f} s of the processor", flush=True)
    for mutant in left:
        verdict, seconds, _ = run_tests(module, mutated(mutant), folder, usual)
        if verdict == "timed out":  # once is no proof: a fork may also inherit a lock that nobody releases
            verdict, seconds, _ = run_tests(module, mutated(mutant), folder, usual)
        RESULTS.parent.mkdir(exist_ok=True)
        entry = {"key": key(mutant), "verdict": verdict, "seconds": round(seconds, 1), **mutant._asdict()}
        with RESULTS.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(f"  {verdict:9} {seconds:5.1f} s  line {mutant.line}: {mutant.before} -> {mutant.after}", flush=True)


def summary(chosen: list[Mutant]) -> None:
    """The survivors, and the score of each module: the share of mutants that made a test fail, crash or hang."""
    known, fine = results(), accepted()
    total = Counter()
    print()
    for module in dict.fromkeys(mutant.module for mutant in chosen):
        here = Counter()
        for mutant in (mutant for mutant in chosen if mutant.module == module):
            verdict = known[key(mutant)]["verdict"]
            if verdict != "survived":
                here["killed"] += 1
            elif mutant.sentence() in fine:
                here["accepted"] += 1
            else:
                here["survived"] += 1
                print(f"src/oht/{module}:{mutant.line}: {mutant.sentence()}")
        total += here
        print(_score(module, here))
    print(_score("all", total))


def _score(name: str, counts: Counter) -> str:
    share = counts["killed"] / max(1, counts.total())
    rest = f"{counts['accepted']} accepted, {counts['survived']} survived"
    return f"{name:24} {counts['killed']} of {counts.total()} killed ({share:.0%}), {rest}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing; see the docstring of this file.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as replay.py or tuners/ [all]")
    parser.add_argument("--sample", type=int, metavar="N", help="only N random mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="of the sample [0]")
    parser.add_argument("--list", action="store_true", help="show the mutants and test none")
    parser.add_argument("--again", action="store_true", help="test survivors that are not accepted again")
    options = parser.parse_args()
    modules = [module for module in TESTS if any(module.startswith(name) for name in options.modules or [""])]
    if not modules:
        parser.error(f"no module of {', '.join(TESTS)} begins with {' or '.join(options.modules)}")
    chosen: list[Mutant] = []
    for module in modules:
        found = mutants(module)
        some = random.Random(options.seed).sample(found, min(options.sample or len(found), len(found)))
        chosen += sorted(some, key=lambda mutant: mutant.line)
    if options.list:
        for mutant in chosen:
            print(f"src/oht/{mutant.module}:{mutant.line}: {mutant.sentence()}")
        raise SystemExit(f"{len(chosen)} mutants")
    if options.again:
        fine = accepted()
        again = {key(mutant) for mutant in chosen if mutant.sentence() not in fine}
        kept = [entry for entry in results().values() if entry["verdict"] != "survived" or entry["key"] not in again]
        RESULTS.write_text("".join(json.dumps(entry) + "\n" for entry in kept))
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    os.chdir(ROOT)
    for name in IMPORTED_ONCE:
        __import__(name)
    warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
    with tempfile.TemporaryDirectory(prefix="oht-mutants-") as folder:
        for module in modules:
            test_module(module, [mutant for mutant in chosen if mutant.module == module], Path(folder))
    summary(chosen)


if __name__ == "__main__":
    main()
