"""How fast a population learns: floating-point operations per second of TD3 updates, beside a bare matrix product.

    python benchmarks/throughput.py

The product is that of the hidden layer's own shape, (P, batch, 300) x (P, 300, 300), in the same process; both take
turns and the best of the repeats counts. Operations are those of the matrix products that one update needs: what Adam,
activations, sampling and targets cost shows as the gap to 1.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from oht import population
from oht import replay as ring
from oht.agents import make
from oht.population import Learner
from oht.types import Spec

SPEC, UNITS = Spec(24, 6), 300  # dm/walker-run
WORK = 200  # updates of all agents in one timed call
ONE_AGENT, SEVERAL = 0.85, 0.95  # goals: of the product's rate


def step_operations(batch: int) -> tuple[float, float]:
    """Of a critic step and of an actor step of TD3: (a, b) x (b, c) takes 2 a b c; a backward pass is two products."""
    first_critic, first_actor = SPEC.obs + SPEC.action, SPEC.obs
    critic = 2 * batch * UNITS * (first_critic + UNITS + 1)
    actor = 2 * batch * UNITS * (first_actor + UNITS + SPEC.action)
    targets = actor + 2 * critic
    critic_step = targets + 2 * (3 * critic - 2 * batch * UNITS * first_critic)  # twins; no gradient for the input
    actor_step = 3 * actor - 2 * batch * UNITS * first_actor + 2 * critic  # through Q_1, not into its weights
    return critic_step, actor_step


def update_operations(batch: int) -> float:
    """Of one TD3 update: a critic step and half an actor step."""
    critic_step, actor_step = step_operations(batch)
    return critic_step + actor_step / 2


def filled_replay(episodes: int = 200, length: int = 1000) -> ring.Replay:
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    replay = ring.empty(episodes * (length + 1), *SPEC)
    for _ in range(episodes):
        replay = ring.extend(replay, draw(length + 1, SPEC.obs), draw(length, SPEC.action), draw(length), False)
    return replay


def learning(number: int, batch: int, replay: ring.Replay, units: int = UNITS) -> tuple[Callable[[], object], int]:
    """A call that learns, and its gradient steps of all agents."""
    algorithm = make("td3", SPEC, hidden=(units, units))
    agents = population.create(jax.random.key(0), algorithm, number)
    hyper = {name: np.full(number, value, np.float32) for name, value in algorithm.hyper.items()}
    updates = max(WORK // number // 2, 2) * 2
    learn = Learner(algorithm, batch).learn
    call = partial(learn, jax.random.key(1), agents, replay, hyper, np.full(number, updates), lambda done, of: None)
    return call, number * updates


def product(number: int, batch: int) -> tuple[Callable[[], object], float]:
    x, weights = jnp.ones((number, batch, UNITS)), jnp.full((number, UNITS, UNITS), 0.003)
    times = max(2000 // number, 20)

    @jax.jit
    def many(x, weights):
        return jax.lax.fori_loop(0, times, lambda _, x: x @ weights, x)

    return partial(many, x, weights), 2.0 * number * batch * UNITS * UNITS * times


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def rates(calls: dict[str, tuple[Callable[[], object], float]], repeats: int) -> dict[str, float]:
    """GFLOP/s of calls with their operations, timed by turns; the best of the repeats counts."""
    best = dict.fromkeys(calls, float("inf"))
    for call, _ in calls.values():
        seconds(call)  # compiles
    for _ in range(repeats):
        for name, (call, _) in calls.items():
            best[name] = min(best[name], seconds(call))
    return {name: operations / best[name] / 1e9 for name, (_, operations) in calls.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=8)
    repeats = parser.parse_args().repeats
    replay = filled_replay()
    print("| P | batch | ms per update of an agent | of P = 1 | GFLOP/s | product's | ratio | goal |")
    print("|---|---|---|---|---|---|---|---|")
    for batch in (100, 256):
        alone = None
        for number in (1, 5, 10, 32):
            learn, updates = learning(number, batch, replay)
            calls = {"learn": (learn, update_operations(batch) * updates), "product": product(number, batch)}
            rate = rates(calls, repeats)
            each = update_operations(batch) / rate["learn"] / 1e6
            alone = alone or each
            goal = ONE_AGENT if number == 1 else SEVERAL
            print(
                f"| {number} | {batch} | {each:.2f} | {each / alone:.2f} x | {rate['learn']:.0f} | "
                f"{rate['product']:.0f} | {rate['learn'] / rate['product']:.2f} | >= {goal} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
