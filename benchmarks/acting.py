"""A call of the policies of M agents, as a rollout makes it: in microseconds, for two widths of networks.

python benchmarks/acting.py
"""

import time

import jax
import numpy as np

from oht import compilation
from oht.agents.td3 import td3
from oht.population import Actors, create
from oht.types import Spec

SPEC, CALLS, BLOCKS = Spec(obs=17, action=6), 128, 20
GOALS = {1: "<= 40", 10: "<= 60"}  # microseconds, by the number of agents


def main() -> None:
    compilation.set_up()
    print("| network | agents | best | median | goal |")
    print("|---|---|---|---|---|")
    for width in (64, 300):
        algorithm = td3(SPEC, hidden=(width, width))
        for number in (1, 5, 10):
            agents = create(jax.random.key(0), algorithm, number)
            hyper = {name: np.full(number, value, np.float32) for name, value in algorithm.hyper.items()}
            obs = np.random.default_rng(0).normal(size=(number, SPEC.obs)).astype(np.float32)
            act = Actors(algorithm).policies(jax.random.key(1), agents, hyper, explore=True)
            act(0, obs)
            times = []
            for _ in range(BLOCKS):
                start = time.perf_counter()
                for t in range(CALLS):
                    act(t, obs)
                times.append((time.perf_counter() - start) / CALLS * 1e6)
            numbers = f"{min(times):.0f} us | {np.median(times):.0f} us"
            print(f"| {width} x {width} | {number} | {numbers} | {GOALS.get(number, '')} |", flush=True)


if __name__ == "__main__":
    main()
