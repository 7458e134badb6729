"""What a run costs on one core: CPU time per env step, of methods and of tasks, and the core-hours of 10^7 steps.

    python benchmarks/core_hours.py [CASE ...]

CPU time, not wall time: what else runs on the machine hardly matters. The iterations before the timed ones compile.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["NPROC"] = "1"  # one thread, before JAX counts the cores

from oht import config, training

STEPS, EVAL_EVERY, EVAL_STEPS = 10_000_000, 100_000, 10 * 1000
START, TIMED_STEPS = 500, 500

WALKER = "dm/walker-run"
CASES: dict[str, dict[str, Any]] = {
    "static": {"task": WALKER},
    "oht-nstep": {"task": WALKER, "method": "oht-nstep", "tune": {"n_step": "1,2,3"}},
    "oht-lr": {"task": WALKER, "method": "oht-lr"},
    "meta-gradient": {"task": WALKER, "method": "meta-gradient"},
    "cem-rl": {"task": WALKER, "method": "cem-rl", "max_episode": 100},  # ten play at once
    "sac": {"task": WALKER, "algo": "sac", "alpha": 0.2},
    **{task: {"task": task} for task in ("gym/ant", "gym/half-cheetah", "robo/ant", "bullet/ant")},
}


class Clock:
    """CPU seconds that are spent in calls of a function."""

    def __init__(self):
        self.seconds = 0.0

    def timed(self, function: Callable) -> Callable:
        def call(*args: Any) -> Any:
            begin = time.process_time()
            result = function(*args)
            self.seconds += time.process_time() - begin
            return result

        return call


def measure(case: dict[str, Any]) -> tuple[float, float]:
    """CPU seconds per env step: of all, and of playing alone."""
    settings = {"max_episode": 500, "start_steps": START, "steps": 10**6, "workers": 0}
    setup = training.build(config.resolve({**settings, **case}))
    t = training.start(setup)
    while t.env_steps < START:
        t = training.explore_at_random(setup, t)
    for _ in range(2):  # the first learns from the random start, so its calls have another size
        t, _ = training.iterate(setup, t, lambda done, of: None)
    clock, play = Clock(), training.play
    training.play = clock.timed(play)
    begin, steps = time.process_time(), t.env_steps
    while t.env_steps - steps < TIMED_STEPS:
        t, _ = training.iterate(setup, t, lambda done, of: None)
    whole, steps = time.process_time() - begin, t.env_steps - steps
    training.play = play
    training.close(setup)
    return whole / steps, clock.seconds / steps


def main() -> None:
    print("| case | ms per step | of these playing | core-hours of a run |")
    print("|---|---|---|---|")
    for name in sys.argv[1:] or CASES:
        whole, played = measure(CASES[name])
        seconds = STEPS * whole + STEPS / EVAL_EVERY * EVAL_STEPS * played
        print(f"| {name} | {1e3 * whole:.2f} | {1e3 * played:.2f} | {seconds / 3600:.1f} |", flush=True)


if __name__ == "__main__":
    main()
