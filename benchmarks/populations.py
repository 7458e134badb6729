"""Ten TD3 agents on HalfCheetah-v5, trained as a population: gradient steps per second of pbt beside AgileRL.

    python benchmarks/populations.py --peers .venv-peers/bin/python

Both have the same networks and batch, one gradient step of an agent for each of its env steps, and a change of the
population after each 1000 of them: pbt copies the best agents, AgileRL holds a tournament and mutates agents. Counted
are gradient steps of all agents. The contenders take turns, each in a process of its own; medians are compared.
Start-up, compilation and the random start are not in the times.

"Learning" is the time in which minibatches are drawn and agents take gradient steps; "all" adds playing, the change of
the population and what AgileRL needs for it, evaluations. AgileRL's mutations change the size of networks, so the
lines below the table say how many weights its learning agents had.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax

import oht
from end_to_end import BATCH, EPISODE, HERE, HIDDEN, after_first_iteration
from oht.population import Learner

POPULATION = 10
GOAL = 5  # times as fast, all in all


class Run(NamedTuple):
    """Gradient steps per second."""

    learning: float
    all: float
    mutations: Mapping[str, int] = {}  # how many agents had each kind
    weights: float = 1.0  # of an agent that learns, beside those of a new one


Runs = dict[str, list[Run]]


def ours(generations: int, seed: int) -> Run:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(pbt, generations, seed).result()


def pbt(generations: int, seed: int) -> Run:
    """The clock starts after the first iteration, which compiles and learns from the random start only."""
    learning: list[float] = []
    Learner.learn = timed(Learner.learn, learning)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        oht.train(
            "gym/half-cheetah",
            method="pbt",
            population=POPULATION,
            interval=1,
            steps=EPISODE * (1 + POPULATION * (1 + generations)),
            start_steps=EPISODE,
            eval_every=10**9,
            eval_episodes=1,
            hidden=HIDDEN,
            batch_size=BATCH,
            seed=seed,
            out=out,
        ).close()
        updates, seconds = after_first_iteration(out)
    return Run(updates / sum(learning[1:]), updates / seconds)


def timed(learn: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = jax.block_until_ready(learn(*args, **kwargs))
        seconds.append(time.perf_counter() - start)
        return result

    return call


def agilerl(python: Path, generations: int, seed: int) -> Run:
    sizes = ["--population", str(POPULATION), "--hidden", *map(str, HIDDEN), "--batch", str(BATCH)]
    flags = ["--steps", str(EPISODE), "--generations", str(generations), "--seed", str(seed), *sizes]
    command = [str(python), str(HERE / "agilerl_population.py"), *flags]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    updates = result["updates"]
    if not updates == result["steps"] == POPULATION * EPISODE * generations:
        raise RuntimeError(f"AgileRL took {updates} gradient steps in {result['steps']} env steps")
    rates = updates / result["learning_seconds"], updates / result["seconds"]
    return Run(*rates, result["mutations"], result["weights"])


def measure(python: Path, generations: int, repeats: int) -> Runs:
    runs: Runs = {"oht, pbt": [], "AgileRL": []}
    for seed in range(repeats):
        runs["oht, pbt"].append(ours(generations, seed))
        runs["AgileRL"].append(agilerl(python, generations, seed))
    return runs


def table(runs: Runs) -> Iterable[str]:
    yield "| ten TD3 agents on HalfCheetah-v5 | time | updates/s (median) | range | best | oht is faster by | goal |"
    yield "|---|---|---|---|---|---|---|"
    for part in ("learning", "all"):
        rates = {name: [getattr(run, part) for run in each] for name, each in runs.items()}
        mine = median(rates["oht, pbt"])
        for name, each in rates.items():
            middle, spread = median(each), f"{min(each):.0f}-{max(each):.0f}"
            goal = f"{GOAL:g} x" if (name, part) == ("AgileRL", "all") else ""
            numbers = f"{middle:.0f} | {spread} | {max(each):.0f} | {mine / middle:.2f} x"
            yield f"| {name} | {part} | {numbers} | {goal} |"


def notes(runs: list[Run]) -> Iterable[str]:
    """What AgileRL's mutations were and what they did to the work of a gradient step."""
    kinds = sum((Counter(run.mutations) for run in runs), Counter())
    unchanged = kinds.pop("None", 0)
    named = ", ".join(f"{name} {number}" for name, number in kinds.most_common())
    yield f"AgileRL mutated {kinds.total()} of {kinds.total() + unchanged} agents ({named})."
    sizes = ", ".join(f"{run.weights:.2f}" for run in runs)
    yield f"Weights of its agents that learned, beside those of a new one, in each repeat: {sizes}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".venv-peers/bin/python", help="the peers' Python")
    parser.add_argument("--generations", type=int, default=1, help="timed, of 1000 env steps of each agent")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    runs = measure(args.peers, args.generations, args.repeats)
    print("\n".join([*table(runs), "", *notes(runs["AgileRL"])]))


if __name__ == "__main__":
    main()
