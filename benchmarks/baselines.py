"""What a gradient step costs in pbt and cem-rl, beside TD3's: time for the same floating-point operations.

    python benchmarks/baselines.py

pbt: ten agents, each with a ring of its own. cem-rl: five actors that take turns with one critic, which takes a step
for each five of theirs. TD3: one agent. All are timed by turns in one process; the best of the repeats counts.
"""

import argparse
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from oht import population
from oht import replay as ring
from oht.agents import make
from oht.learners.own_replays import OwnReplays
from oht.learners.shared_critic import SharedCritic, evolving
from throughput import SPEC, filled_replay, learning, rates, step_operations, update_operations

BATCH, GOAL = 100, 1.2
Timed = tuple[Callable[[], object], float]  # a call and its operations


def pbt(number: int, updates: int, replay: ring.Replay) -> Timed:
    algorithm = make("td3", SPEC)
    agents = population.create(jax.random.key(0), algorithm, number)
    hyper = {name: np.full(number, value, np.float32) for name, value in algorithm.hyper.items()}
    own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (number, *leaf.shape)).copy(), replay)
    call = partial(OwnReplays(algorithm, BATCH).learn, jax.random.key(1), agents, own, hyper, np.full(number, updates))
    return partial(call, lambda done, of: None), update_operations(BATCH) * number * updates


def cem_rl(number: int, updates: int, replay: ring.Replay) -> Timed:
    algorithm = evolving(make("td3", SPEC), variance=1e-3)
    agents = population.create(jax.random.key(0), algorithm, number + 1)  # the first is the mean, which does not learn
    hyper = {name: np.full(number + 1, value, np.float32) for name, value in algorithm.hyper.items()}
    critic_step, actor_step = step_operations(BATCH)
    operations = number * (updates // number * critic_step + updates * actor_step)
    steps = np.array([0] + number * [updates])
    call = partial(SharedCritic(algorithm, BATCH).learn, jax.random.key(1), agents, replay, hyper, steps)
    return partial(call, lambda done, of: None), operations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=8)
    repeats = parser.parse_args().repeats
    replay = filled_replay(episodes=20)
    td3, updates = learning(1, BATCH, replay)
    calls = {
        "td3, P = 1": (td3, update_operations(BATCH) * updates),
        "pbt, P = 10": pbt(10, 20, replay),
        "cem-rl, 5 actors": cem_rl(5, 50, replay),
    }
    found = rates(calls, repeats)
    print("| a gradient step | GFLOP/s | cost beside td3 | goal |")
    print("|---|---|---|---|")
    for name, rate in found.items():
        print(f"| {name} | {rate:.0f} | {found['td3, P = 1'] / rate:.2f} x | <= {GOAL} x |")


if __name__ == "__main__":
    main()
