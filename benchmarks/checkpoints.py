"""What checkpoints cost: a run of the largest usual kind, saved as it is every five minutes.

    python benchmarks/checkpoints.py

Eleven TD3 agents of dm/walker-run's sizes (a main agent and N = 10 members, 2 x 300 units), a full replay of 1M
transitions. Between two checkpoints lie as many new transitions as five minutes of training bring; more of them cost
more, so the count is that of a fast machine.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from oht import agents, population
from oht import replay as ring
from oht.runs import checkpoints
from oht.types import Spec

SPEC = Spec(24, 6)
AGENTS, SLOTS, EPISODE = 11, 1_000_000, 1000
INTERVAL = 5 * 60  # seconds between checkpoints, the default
FRESH = 100_000  # env steps in that time: 333 a second
GOAL = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write [a temporary folder]")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    algorithm = agents.make("td3", SPEC)
    state = jax.block_until_ready(population.create(jax.random.key(0), algorithm, AGENTS))
    replay = with_episodes(rng, ring.empty(SLOTS, *SPEC), SLOTS // EPISODE)
    folder = Path(tempfile.mkdtemp(dir=options.out))
    try:
        rows = [("first, whole replay", *timed(folder, 1, state, replay))]
        for number in range(2, 2 + options.repeats):
            replay = jax.block_until_ready(with_episodes(rng, replay, FRESH // EPISODE))
            rows.append((f"{FRESH:,} new transitions", *timed(folder, number, state, replay)))
        since = time.perf_counter()
        checkpoints.load(folder, state, ring.empty(SLOTS, *SPEC))
        loading = time.perf_counter() - since
    finally:
        shutil.rmtree(folder)

    print(f"{'checkpoint':26} {'seconds':>8} {'MB':>8} {'of 5 minutes':>13}")
    for name, seconds, size in rows:
        print(f"{name:26} {seconds:8.2f} {size / 1e6:8.0f} {seconds / INTERVAL:12.2%}")
    print(f"{'loading':26} {loading:8.2f}")
    share = float(np.median([seconds for _, seconds, _ in rows[1:]])) / INTERVAL
    print(f"\nmedian {share:.2%} of the wall time; goal: at most {GOAL:.0%}: {'met' if share <= GOAL else 'missed'}")


def with_episodes(rng: np.random.Generator, replay: ring.Replay, number: int) -> ring.Replay:
    for _ in range(number):
        obs = rng.normal(size=(EPISODE + 1, SPEC.obs)).astype(np.float32)
        action = rng.uniform(-1, 1, (EPISODE, SPEC.action)).astype(np.float32)
        replay = ring.extend(replay, obs, action, np.ones(EPISODE, np.float32), False)
    return replay


def timed(folder: Path, number: int, state, replay: ring.Replay) -> tuple[float, int]:
    """Seconds, and bytes written."""
    before = {path for path in folder.rglob("*") if path.is_file()}
    since = time.perf_counter()
    checkpoints.save(folder, number, state, {"env_steps": number}, replay)
    seconds = time.perf_counter() - since
    return seconds, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path not in before)


if __name__ == "__main__":
    main()
