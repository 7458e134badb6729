"""Training TD3 on HalfCheetah-v5, end to end: milliseconds per env step beside SBX and Stable-Baselines3.

    python benchmarks/end_to_end.py --peers .venv-peers/bin/python

All have the same networks, batch and one gradient step per env step. The contenders take turns, each in a process of
its own, so that a busy moment of the machine does not hit one of them alone; medians are compared. Start-up,
compilation and the random start are not in the times.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

from oht import runs

HERE = Path(__file__).parent
HIDDEN, BATCH = (300, 300), 100
EPISODE = 1000  # HalfCheetah never ends before
GOALS = {"SBX, train_freq 50": 1.3, "SBX, train_freq 1": 1.3, "SB3": 3.5}  # times as fast

Times = dict[str, list[float]]


def ours(overlap: bool, steps: int) -> float:
    """From the wall times in metrics.csv; the row of the first iteration, which compiles, is where the clock starts."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        settings = {
            "--steps": 2 * EPISODE + steps,
            "--start-steps": EPISODE,
            "--eval-every": 10**9,
            "--eval-episodes": 1,
            "--hidden": ",".join(map(str, HIDDEN)),
            "--batch-size": BATCH,
            "--overlap": str(overlap).lower(),
            "--out": out,
        }
        flags = [str(part) for pair in settings.items() for part in pair]
        command = [str(Path(sys.executable).with_name("oht")), "train", "gym/half-cheetah", "--quiet", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken, seconds = after_first_iteration(out)
    return 1000 * seconds / taken


def after_first_iteration(run: Path) -> tuple[int, float]:
    """Gradient steps of all agents, and seconds; refuses a run with another number of env steps."""
    rows = runs.rows(run / "metrics.csv")
    first, last = rows[0], rows[-1]
    updates = last["updates"] - first["updates"]
    if updates != last["env_steps"] - first["env_steps"]:
        raise RuntimeError("our run did not take one gradient step per env step")
    return int(updates), last["wall_time"] - first["wall_time"]


def peer(python: Path, name: str, train_freq: int, steps: int) -> float:
    sizes = ["--hidden", *map(str, HIDDEN), "--batch", str(BATCH)]
    flags = ["--train-freq", str(train_freq), "--steps", str(steps), *sizes]
    command = [str(python), str(HERE / "peers.py"), name, *flags]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    if result["updates_per_step"] != 1.0:
        raise RuntimeError(f"{name} took {result['updates_per_step']} gradient steps per env step")
    return result["ms_per_step"]


def contenders(python: Path) -> dict[str, Callable[[int], float]]:
    return {
        "oht": partial(ours, False),
        "oht, --overlap true": partial(ours, True),
        "SBX, train_freq 50": partial(peer, python, "sbx", 50),
        "SBX, train_freq 1": partial(peer, python, "sbx", 1),
        "SB3": partial(peer, python, "sb3", 1),
    }


def measure(python: Path, steps: int, repeats: int) -> Times:
    """Milliseconds per env step of each contender, one number for each repeat."""
    trains = contenders(python)
    times: Times = {name: [] for name in trains}
    for _ in range(repeats):
        for name, run in trains.items():
            times[name].append(run(steps))
    return times


def table(times: Mapping[str, list[float]]) -> Iterable[str]:
    mine = median(times["oht"])
    yield "| TD3 on HalfCheetah-v5 | ms per step (median) | range | best | steps/s | oht is faster by | goal |"
    yield "|---|---|---|---|---|---|---|"
    for name, each in times.items():
        ms, spread = median(each), f"{min(each):.2f}-{max(each):.2f}"
        goal = f"{GOALS[name]:g} x" if name in GOALS else ""
        yield f"| {name} | {ms:.2f} | {spread} | {min(each):.2f} | {1000 / ms:.0f} | {ms / mine:.2f} x | {goal} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".venv-peers/bin/python", help="the peers' Python")
    parser.add_argument("--steps", type=int, default=4000, help="timed env steps, a multiple of 1000")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print("\n".join(table(measure(args.peers, args.steps, args.repeats))))


if __name__ == "__main__":
    main()
