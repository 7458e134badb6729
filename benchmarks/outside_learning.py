"""The share of the wall time of training that is not spent in `learn`: acting, stepping, storing, writing.

    python benchmarks/outside_learning.py

Runs `oht.train` on three tasks and times every learning call; the first two iterations, which compile, are left out.
"""

import argparse
import tempfile
import time
from itertools import product
from pathlib import Path

import jax

import oht
from oht.callbacks import Callback
from oht.population import Learner

TASKS = ("dm/walker-run", "dm/cheetah-run", "gym/half-cheetah")
CASES = {  # name: (settings, goal)
    "static, P = 1": ({"method": "static"}, 0.10),
    "oht, P = 5, one plays": ({"method": "oht", "tune": {"n_step": oht.Choice(1, 2, 3, 4, 5)}}, 0.05),
    "oht-nstep, P = 5, one plays": ({"method": "oht-nstep", "tune": {"n_step": oht.Choice(1, 2, 3, 4, 5)}}, 0.05),
    "oht-lr, P = 11, ten play": ({"method": "oht-lr", "population": 10}, 0.05),
}
COMPILING = 2  # iterations: the first learns on one core at a time, see `Learner.learn`


class Clock(Callback):
    """Adds up the time in learning calls and in all, from the end of the iterations that compile."""

    def __init__(self):
        self.inside = self.all = 0.0
        self.iterations = 0
        self.since = 0.0

    def timed(self, learn):
        def call(*args, **kwargs):
            start = time.perf_counter()
            result = jax.block_until_ready(learn(*args, **kwargs))
            if self.iterations >= COMPILING:
                self.inside += time.perf_counter() - start
            return result

        return call

    def on_iteration(self, iteration):
        self.iterations += 1
        if self.iterations == COMPILING:
            self.since = time.perf_counter()
        self.all = time.perf_counter() - self.since


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=4, help="timed iterations of each method")
    iterations = parser.parse_args().iterations
    learn = Learner.learn
    print("| task | method | seconds | outside of learn | goal |")
    print("|---|---|---|---|---|")
    for task, (name, (settings, goal)) in product(TASKS, CASES.items()):
        clock = Clock()
        Learner.learn = clock.timed(learn)
        plays = 10 if "ten play" in name else 1
        steps = 1000 * (1 + plays * (iterations + COMPILING))
        with tempfile.TemporaryDirectory() as folder:
            oht.train(
                task,
                out=Path(folder) / "run",
                steps=steps,
                start_steps=1000,
                eval_every=10**9,
                eval_episodes=1,
                callbacks=[clock],
                **settings,
            ).close()
        print(f"| {task} | {name} | {clock.all:.1f} | {1 - clock.inside / clock.all:.1%} | <= {goal:.0%} |", flush=True)


if __name__ == "__main__":
    main()
