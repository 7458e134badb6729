"""Random actions on all 13 tasks: their returns beside the paper's low scores, and our tasks beside their originals.

    python benchmarks/random_scores.py --episodes 100

writes `results/random_scores.csv` (all tasks) and `results/side_by_side.csv` (control suite and Gym tasks: EnvPool's
beside dm_control's and Gymnasium's own, from the same start state with the same actions, then with own starts).
Gymnasium's own MuJoCo tasks need the package `imageio`.
"""

import argparse
import csv
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

os.environ.setdefault("MUJOCO_GL", "disable")  # dm_control looks for a display otherwise

import gymnasium
import numpy as np

from oht.envs.pool import open_pool
from oht.envs.tasks import TASKS
from oht.types import Episode

RESULTS = Path(__file__).parent.parent / "results"
Row = Mapping[str, object]


def random_episodes(task: str, episodes: int, seed: int = 0, workers: int | None = None) -> list[Episode]:
    """Episodes of actions uniform in [-1, 1], ten at a time; seeds count up from `seed`."""
    pool = open_pool(task, size=min(10, episodes), workers=workers)
    rng = np.random.default_rng(seed)
    seeds, played = range(seed, seed + episodes), []

    def act(t: int, obs: np.ndarray) -> np.ndarray:
        return rng.uniform(-1.0, 1.0, (len(obs), pool.action))

    for start in range(0, episodes, pool.size):
        played += pool.rollout(act, seeds[start : start + pool.size])
    pool.close()
    return played


class Summary(NamedTuple):
    """What is said of a set of episodes."""

    episodes: int
    mean: float
    std: float
    standard_error: float
    length: float
    terminal: float  # the share of episodes that did not run into the time limit
    reward_min: float
    reward_max: float


def summary(episodes: Sequence[Episode]) -> Summary:
    totals = np.array([episode.total for episode in episodes])
    rewards = np.concatenate([episode.reward for episode in episodes])
    std = float(totals.std(ddof=1))
    return Summary(
        episodes=len(episodes),
        mean=float(totals.mean()),
        std=std,
        standard_error=std / len(episodes) ** 0.5,
        length=float(np.mean([len(episode.reward) for episode in episodes])),
        terminal=float(np.mean([episode.terminal for episode in episodes])),
        reward_min=float(rewards.min()),
        reward_max=float(rewards.max()),
    )


class Original(Protocol):
    """A task as its authors ship it."""

    obs: int
    action: int
    limit: int  # steps after which an episode is cut

    def reset(self, seed: int) -> np.ndarray: ...

    def start_at(self, obs: np.ndarray) -> np.ndarray:
        """Starts an episode in the state that an observation shows; the place along x, which none shows, is 0."""
        ...

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Observation, reward, terminated."""
        ...


class GymOriginal:
    """Gymnasium's own MuJoCo task. Its observation holds all of qpos but the `hidden` first entries, then qvel."""

    def __init__(self, id: str, hidden: int):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Walker2d-v4 is old, and meant to be
            self._env: Any = gymnasium.make(id).unwrapped
        self._hidden = hidden
        self.obs, self.action = self._env.observation_space.shape[0], self._env.action_space.shape[0]
        self.limit = gymnasium.spec(id).max_episode_steps or 0

    def reset(self, seed: int) -> np.ndarray:
        return self._env.reset(seed=seed)[0]

    def start_at(self, obs: np.ndarray) -> np.ndarray:
        self._env.reset(seed=0)
        model, shown = self._env.model, self._env.model.nq - self._hidden
        self._env.set_state(np.concatenate([np.zeros(self._hidden), obs[:shown]]), obs[shown : shown + model.nv])
        return self._env._get_obs()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        obs, reward, terminated, _, _ = self._env.step(action)
        return obs, float(reward), bool(terminated)


class SuiteOriginal:
    """A task of dm_control; `pose` finds qpos in an observation, whose last entries are qvel."""

    def __init__(self, domain: str, task: str, pose: Callable[[np.ndarray], np.ndarray]):
        self._domain, self._task, self._pose = domain, task, pose
        self._load(seed=0)
        self.obs = sum(int(np.prod(part.shape)) for part in self._env.observation_spec().values())
        self.action = self._env.action_spec().shape[0]
        self.limit = round(self._env._step_limit)

    def _load(self, seed: int) -> None:
        from dm_control import suite

        self._env = suite.load(self._domain, self._task, task_kwargs={"random": seed})

    def reset(self, seed: int) -> np.ndarray:
        self._load(seed)
        return self._flat(self._env.reset().observation)

    def start_at(self, obs: np.ndarray) -> np.ndarray:
        self._env.reset()
        physics = self._env.physics
        with physics.reset_context():
            physics.data.qpos[:] = self._pose(obs)
            physics.data.qvel[:] = obs[-physics.model.nv :]
        return self._flat(self._env.task.get_observation(physics))

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        step = self._env.step(action)
        return self._flat(step.observation), float(step.reward), step.last() and step.discount == 0.0

    @staticmethod
    def _flat(parts: Mapping[str, Any]) -> np.ndarray:
        return np.concatenate([np.ravel(part) for part in parts.values()])


def cheetah_pose(obs: np.ndarray) -> np.ndarray:
    """The observation starts with qpos, x left out."""
    return np.concatenate([[0.0], obs[:8]])


def walker_pose(obs: np.ndarray) -> np.ndarray:
    """(z, x, pitch, joints) from the height and from (cos, sin) of each body's absolute angle."""
    cos, sin = obs[0:14:2], obs[1:14:2]
    angle = np.arctan2(sin, cos)  # torso; right thigh, leg, foot; left thigh, leg, foot
    parent = angle[[0, 1, 2, 0, 4, 5]]
    joints = (parent - angle[1:] + np.pi) % (2 * np.pi) - np.pi  # joints turn against the torso's sense
    return np.concatenate([[obs[14] - 1.3, 0.0, angle[0]], joints])


ORIGINALS: Mapping[str, tuple[str, Callable[[], Original]]] = {
    "dm/walker-run": ("dm_control", partial(SuiteOriginal, "walker", "run", walker_pose)),
    "dm/walker-walk": ("dm_control", partial(SuiteOriginal, "walker", "walk", walker_pose)),
    "dm/walker-stand": ("dm_control", partial(SuiteOriginal, "walker", "stand", walker_pose)),
    "dm/cheetah-run": ("dm_control", partial(SuiteOriginal, "cheetah", "run", cheetah_pose)),
    "gym/ant": ("Gymnasium", partial(GymOriginal, "Ant-v5", hidden=2)),
    "gym/half-cheetah": ("Gymnasium", partial(GymOriginal, "HalfCheetah-v5", hidden=1)),
    "gym/walker2d": ("Gymnasium", partial(GymOriginal, "Walker2d-v4", hidden=1)),
}


def play(original: Original, obs: np.ndarray, actions: np.ndarray) -> Episode:
    """The episode that these actions make from where the original is now."""
    rows, rewards, terminated = [obs], [], False
    for action in actions:
        obs, reward, terminated = original.step(action)
        rows.append(obs)
        rewards.append(reward)
        if terminated:
            break
    return Episode(np.array(rows), actions[: len(rewards)], np.array(rewards), terminated)


def replay(original: Original, episode: Episode, steps: int | None = None) -> Episode:
    """The same start state and the same actions in the original."""
    return play(original, original.start_at(episode.obs[0].astype(np.float64)), episode.action[:steps])


def original_episodes(original: Original, episodes: int, seed: int = 0) -> list[Episode]:
    """Random actions from the original's own start states."""
    rng = np.random.default_rng(seed)
    return [
        play(original, original.reset(seed + i), rng.uniform(-1.0, 1.0, (original.limit, original.action)))
        for i in range(episodes)
    ]


def error(ours: np.ndarray, theirs: np.ndarray, steps: int) -> float:
    """The largest difference within the first `steps` steps that both have."""
    both = min(len(ours), len(theirs), steps)
    return float(np.abs(ours[:both] - theirs[:both]).max())


def score_row(task: str, episodes: Sequence[Episode]) -> Row:
    paper = "" if TASKS[task].ours else TASKS[task].low
    return {"task": task, "paper_low": paper, **summary(episodes)._asdict()}


def side_by_side_row(task: str, episodes: Sequence[Episode], replayed: int, own: int) -> Row:
    """Our task beside its original: `replayed` of our episodes replayed there, and `own` episodes of its own."""
    name, make = ORIGINALS[task]
    original = make()
    pairs = [(episode, replay(original, episode)) for episode in episodes[:replayed]]
    ours, theirs = summary(episodes), summary(original_episodes(original, own))
    return {
        "task": task,
        "original": name,
        "obs": episodes[0].obs.shape[1],
        "original_obs": original.obs,
        "action": episodes[0].action.shape[1],
        "original_action": original.action,
        "limit": TASKS[task].limit,
        "original_limit": original.limit,
        "replayed": replayed,
        "start_error": max(error(a.obs, b.obs, 1) for a, b in pairs),
        "reward_error_1": max(error(a.reward, b.reward, 1) for a, b in pairs),
        "reward_error_10": max(error(a.reward, b.reward, 10) for a, b in pairs),
        "reward_error_50": max(error(a.reward, b.reward, 50) for a, b in pairs),
        "same_end": np.mean([(len(a.reward), a.terminal) == (len(b.reward), b.terminal) for a, b in pairs]),
        "mean": ours.mean,
        "original_mean": theirs.mean,
        "standard_errors_apart": (ours.mean - theirs.mean) / np.hypot(ours.standard_error, theirs.standard_error),
        "length": ours.length,
        "original_length": theirs.length,
        "terminal": ours.terminal,
        "original_terminal": theirs.terminal,
        "reward_min": ours.reward_min,
        "original_reward_min": theirs.reward_min,
        "reward_max": ours.reward_max,
        "original_reward_max": theirs.reward_max,
    }


def text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows({name: text(value) for name, value in row.items()} for row in rows)


def show(rows: Sequence[Row]) -> None:
    """One line per column and one column per row, as a task has many numbers."""
    for name in rows[0]:
        print(f"{name:22}", *(f"{text(row[name]):>19}" for row in rows))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100, help="random episodes for each task (default 100)")
    parser.add_argument("--replayed", type=int, default=10, help="episodes replayed in the original (default 10)")
    parser.add_argument("--original-episodes", type=int, default=20, help="the original's own episodes (default 20)")
    options = parser.parse_args()
    scores, pairs = [], []
    for task in TASKS:
        episodes = random_episodes(task, options.episodes)
        scores.append(score_row(task, episodes))
        print(*(f"{name} {text(value)}" for name, value in scores[-1].items()), sep=" · ", flush=True)
        if task in ORIGINALS:
            pairs.append(side_by_side_row(task, episodes, options.replayed, options.original_episodes))
    print()
    show(pairs)
    write(RESULTS / "random_scores.csv", scores)
    write(RESULTS / "side_by_side.csv", pairs)


if __name__ == "__main__":
    main()
