"""The same tuners for loops that are not ours: PyTorch, Stable-Baselines3, or written by hand.

The loop holds the agents; the tuner says what to do with them and hears how it went:

    rates = {"learning_rate": LogFloat(3e-4, 1.0)}
    tuner = AskTell("oht", tune=rates, base={"learning_rate": 3e-4}, steps=100_000)
    while not tuner.finished:
        plan = tuner.ask()
        ...  # continue from plan.sources, set plan.values, take plan.updates gradient steps, let plan.actors play
        tuner.tell(returns, env_steps)

JAX is not needed, and nothing is pickled.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oht import methods, runs, seeds, settings, spaces
from oht.errors import UserError
from oht.types import Clock, Method, Outcome, Proposal, Row

FORMAT = 1


class Plan(NamedTuple):
    """What to do in an iteration, agent by agent."""

    values: list[dict[str, float]]  # the hyper-parameters of each agent
    sources: list[int]  # whose weights each agent continues from; its own number: unchanged; -1: fresh weights
    updates: list[int]  # gradient steps that each agent takes now
    actors: list[int]  # which agents then play, one episode each
    seeds: list[int]  # of the environment, for each of these episodes; equal seeds begin in the same state
    explore: bool  # whether they play with exploration noise


class AskTell:
    """A tuner for agents of any framework.

    `method` is a name (`oht methods` are listed by `oht train --help`) or a Method; `tune` maps names to spaces as in
    `oht.train`; `base` holds every hyper-parameter of your agent that the tuner may set; `steps` is the budget in env
    steps of all agents. Settings of the method are keyword arguments.
    """

    def __init__(
        self,
        method: str | Method = "oht",
        tune: Mapping[str, Any] | None = None,
        base: Mapping[str, float] | None = None,
        *,
        steps: int,
        seed: int = 0,
        **method_settings: Any,
    ):
        self._name = method if isinstance(method, str) else "your own"
        chosen = methods.find(method) if isinstance(method, str) else method
        if chosen.adapt:
            raise UserError(f"the method {self._name} changes the algorithm itself, so it works with oht.train only.")
        self.tune = {name: spaces.dimension(name, space) for name, space in (tune or chosen.tune).items()}
        self.base = {name: float(value) for name, value in (base or {}).items()}
        self.steps, self.seed = settings.number("steps", steps, int), settings.number("seed", seed, int)
        self._settings = settings.read(chosen.settings, method_settings)
        self._tuner = chosen.make(self._settings, self.tune, self.base)
        self._state = self._tuner.init(seeds.generator(self.seed, "tuner"))
        self._owed = np.zeros(self._tuner.population)
        self._asked: tuple[Any, Proposal, np.ndarray] | None = None
        self.env_steps = self.iteration = self._fresh = 0
        self.schedule: list[Row] = []  # a row for each iteration, as in schedule.csv

    @property
    def population(self) -> int:
        """How many agents there are."""
        return self._tuner.population

    @property
    def finished(self) -> bool:
        return self.env_steps >= self.steps

    @property
    def champion(self) -> int:
        """The agent to evaluate and to keep."""
        return self._tuner.champion(seeds.generator(self.seed, "policy", self.iteration), self._state)

    def started(self, env_steps: int) -> None:
        """Counts env steps that were taken before the first `ask`, with random actions: agents then learn for them."""
        self.env_steps += env_steps
        self._fresh += env_steps

    def ask(self) -> Plan:
        """The next iteration. Asking again before `tell` gives the same answer."""
        clock = Clock(self.env_steps, self.steps, self.iteration)
        state, proposal = self._tuner.ask(seeds.generator(self.seed, "ask", self.iteration), self._state, clock)
        owed = self._owed + proposal.ratios * self._fresh
        updates = owed.astype(int)
        self._asked = state, proposal, owed - updates
        return Plan(
            values=[{name: float(v[j]) for name, v in proposal.hyper.items()} for j in range(self.population)],
            sources=proposal.sources.tolist(),
            updates=updates.tolist(),
            actors=proposal.actors.tolist(),
            seeds=[seeds.start(self.seed, int(number)) for number in proposal.starts],
            explore=proposal.explore,
        )

    def tell(self, returns: Sequence[float], env_steps: int, replaced: Sequence[int] = ()) -> Row:
        """The returns of the actors' episodes, in order, and how many env steps they took together.

        `replaced` are agents that had diverged and that you gave other weights; their returns do not count.
        The answer is the row of the schedule.
        """
        if self._asked is None:
            raise UserError("tell answers an ask; call ask first.")
        state, proposal, owed = self._asked
        values = np.asarray(returns, np.float64)
        if values.shape != proposal.actors.shape:
            raise UserError(f"{len(proposal.actors)} agents played, so tell takes as many returns, not {values.size}.")
        if env_steps < 0:
            raise UserError(f"env_steps is {env_steps}, but must be 0 or more.")
        gone = np.isin(np.arange(self.population), np.asarray(replaced, int))
        values = np.where(gone[proposal.actors] | ~np.isfinite(values), -np.inf, values)
        rng = seeds.generator(self.seed, "tell", self.iteration)
        self._state, row = self._tuner.tell(rng, state, proposal, Outcome(values, gone))
        self._owed, self._asked, self._fresh = owed, None, int(env_steps)
        self.iteration += 1
        self.env_steps += int(env_steps)
        self.schedule.append({"iteration": self.iteration, "env_steps": self.env_steps, **row})
        return row

    def save(self, path: str | Path) -> None:
        """Everything, in one .npz file."""
        about = {
            "format": FORMAT,
            "method": self._name,
            "tune": {name: spaces.format(dim) for name, dim in self.tune.items()},
            "base": self.base,
            "steps": self.steps,
            "seed": self.seed,
            "settings": asdict(self._settings),
            "counters": [self.env_steps, self.iteration, self._fresh],
            "schedule": self.schedule,
        }
        arrays = {"about": np.array(json.dumps(about)), "owed": self._owed, **_flat(self._state)}
        content = io.BytesIO()
        np.savez(content, **arrays)
        with runs.refused(Path(path)):
            runs.write_aside(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path, method: Method | None = None) -> "AskTell":
        """A saved tuner, to go on exactly where it was; a method of your own is given again."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            about = json.loads(str(arrays.pop("about")))
            found = about["format"]
        except FileNotFoundError:
            raise UserError(f"there is no file {path}.") from None
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{path} is not a saved tuner: {error}.") from None
        if found != FORMAT:
            raise UserError(f"{path} has format {found}, this version of oht reads format {FORMAT}.")
        made = cls(
            method or about["method"], about["tune"], about["base"], steps=about["steps"], seed=about["seed"],
            **about["settings"],
        )  # fmt: skip
        made._owed = arrays.pop("owed")
        made._state = _like(made._state, arrays)
        made.env_steps, made.iteration, made._fresh = about["counters"]
        made.schedule = about["schedule"]
        return made


def _flat(state: Any, place: str = "state") -> dict[str, np.ndarray]:
    """The arrays of nested tuples and dicts, by their places."""
    if isinstance(state, Mapping | tuple):
        parts = state.items() if isinstance(state, Mapping) else enumerate(state)
        return {name: leaf for key, part in parts for name, leaf in _flat(part, f"{place}/{key}").items()}
    return {place: np.asarray(state)}


def _like(state: Any, arrays: Mapping[str, np.ndarray], place: str = "state") -> Any:
    """The same nesting with these arrays."""
    if isinstance(state, Mapping):
        return {key: _like(part, arrays, f"{place}/{key}") for key, part in state.items()}
    if isinstance(state, tuple):
        parts = [_like(part, arrays, f"{place}/{key}") for key, part in enumerate(state)]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return arrays[place]
