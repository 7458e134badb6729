"""The same tuners for loops that are not ours: PyTorch, Stable-Baselines3, or written by hand.

The loop holds the agents; the tuner says what to do with them and learns from their returns:

    tuner = AskTell("oht", tune={"learning_rate": LogFloat(3e-4, 1.0)}, steps=100_000)
    while not tuner.finished:
        plan = tuner.ask()
        ...  # continue from plan.sources, set plan.values, take plan.updates gradient steps, let plan.actors play
        tuner.tell(returns, env_steps)

JAX is not needed, and nothing is pickled.
"""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oht import methods, runs, seeds, settings, spaces
from oht.contract import checked
from oht.errors import UserError
from oht.types import Clock, Method, Outcome, Proposal, Row, Tune

FORMAT = 1
MOST_STEPS = 10**12  # counted exactly everywhere


class Plan(NamedTuple):
    """What to do in an iteration, agent by agent."""

    values: list[dict[str, float]]  # the hyper-parameters of each agent
    sources: list[int]  # whose weights each agent continues from; its own number: unchanged; -1: fresh weights
    updates: list[int]  # gradient steps that each agent takes now
    actors: list[int]  # which agents then play, one episode each; an agent that plays twice is named twice
    seeds: list[int]  # of the environment, for each of these episodes; equal seeds begin in the same state
    explore: bool  # whether they play with exploration noise


class AskTell:
    """A tuner for agents of any framework.

    `method` is the name of a method (README, "Methods") or a Method of your own. `tune` maps names to spaces as in
    `oht.train`; without it the method's own are tuned. `base` holds the values of other hyper-parameters that your
    agents get, and the value that a range is searched from. `steps` is the budget in env steps of all agents together.
    Settings of the method are keyword arguments: `AskTell("pbt", ..., population=4)`.
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
        if not isinstance(method, str | Method):
            raise UserError(f"method is {method!r}, but must be the name of a method or an oht.Method.")
        self._name = method if isinstance(method, str) else None  # None: a method of the user's own
        chosen = methods.find(method) if isinstance(method, str) else method
        if chosen.adapt:
            raise UserError(f"{self._title} changes the algorithm itself, so it works with oht.train only.")
        self.steps = _count("steps", steps, least=1)
        self.seed = _count("seed", seed, least=0, most=2**31 - 1)
        self.tune, self.base = self._spaces(chosen, tune, base)
        self._settings = self._read(chosen.settings, method_settings)
        self._tuner = checked(chosen.make(self._settings, self.tune, self.base), self._title, self.base)
        self._state = self._tuner.init(seeds.generator(self.seed, "tuner"))
        self._owed = np.zeros(self._tuner.population)  # gradient steps that each agent has yet to take, from rounding
        self._asked: tuple[Any, Proposal, np.ndarray] | None = None  # what `ask` answered and `tell` continues
        self.env_steps = self.iteration = self._fresh = 0
        self.schedule: list[Row] = []  # a row for each iteration, as in schedule.csv

    @property
    def population(self) -> int:
        """How many agents there are."""
        return self._tuner.population

    @property
    def finished(self) -> bool:
        """Whether the budget is used up."""
        return self.env_steps >= self.steps

    @property
    def champion(self) -> int:
        """The agent to evaluate and to keep."""
        return self._tuner.deployed(seeds.generator(self.seed, "policy"), self._state)

    def add_steps(self, env_steps: int) -> None:
        """Count env steps that no plan asked for, such as a random start: agents learn for them in the next plan."""
        if self._asked:
            raise UserError("add_steps counts for the next plan, so call it before ask, not between ask and tell.")
        env_steps = _count("env_steps", env_steps, least=0)
        self.env_steps += env_steps
        self._fresh += env_steps

    def ask(self) -> Plan:
        """The plan of the next iteration. Asking again before `tell` gives the same plan."""
        clock = Clock(self.env_steps, self.steps, self.iteration)
        state, proposal = self._tuner.ask(seeds.generator(self.seed, "ask", self.iteration), self._state, clock)
        owed = self._owed + proposal.ratios * self._fresh
        updates = owed.astype(int)
        self._asked = state, proposal, owed - updates
        known = {*self.base, *(part for name in self.tune for part in spaces.tied(name))}
        return Plan(
            values=[
                {name: float(column[j]) for name, column in proposal.hyper.items() if name in known}
                for j in range(self.population)
            ],
            sources=proposal.sources.tolist(),
            updates=updates.tolist(),
            actors=proposal.actors.tolist(),
            seeds=[seeds.start(self.seed, int(number)) for number in proposal.starts],
            explore=proposal.explore,
        )

    def tell(
        self, returns: float | Sequence[float] | np.ndarray, env_steps: int, replaced: Sequence[int] | np.ndarray = ()
    ) -> Row:
        """The return of each actor's episode, in their order, and the env steps that the episodes took together.

        `replaced` are the agents that had diverged and to which you gave other weights: what is known about them is
        forgotten. Their returns do not count, nor does a return that is not finite. The answer is the iteration's row
        of the schedule.
        """
        if self._asked is None:
            raise UserError("tell answers an ask, so call ask first.")
        state, proposal, owed = self._asked
        values = _returns(returns, len(proposal.actors))
        env_steps = _count("env_steps", env_steps, least=1)
        gone = self._replaced(replaced)
        values = np.where(gone[proposal.actors] | ~np.isfinite(values), -np.inf, values)
        rng = seeds.generator(self.seed, "tell", self.iteration)
        self._state, row = self._tuner.tell(rng, state, proposal, Outcome(values, gone))
        self._owed, self._asked, self._fresh = owed, None, env_steps
        self.iteration += 1
        self.env_steps += env_steps
        self.schedule.append({"iteration": self.iteration, "env_steps": self.env_steps, **row})
        return self.schedule[-1]

    def save(self, path: str | Path) -> None:
        """Write everything to one .npz file; `load` continues exactly where this tuner is."""
        about = {
            "format": FORMAT,
            "method": self._name,
            "tune": {name: spaces.format(dim) for name, dim in self.tune.items()},
            "base": self.base,
            "steps": self.steps,
            "seed": self.seed,
            "settings": asdict(self._settings),
            "counters": [self.env_steps, self.iteration, self._fresh],
            "asked": self._asked is not None,
            "schedule": self.schedule,
        }
        arrays = {"about": np.array(json.dumps(about)), "owed": self._owed, **_flat(self._state)}
        content = io.BytesIO()
        np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
        with runs.refused(Path(path)):
            runs.write_aside(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path, method: Method | None = None) -> "AskTell":
        """Read a saved tuner, to go on exactly where it was. A method of your own is given again."""
        damaged = UserError(f"{path} is not a tuner that AskTell.save wrote, or it is damaged.")
        try:
            with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
                arrays = dict(file)
            about = json.loads(str(arrays.pop("about")))
            found, name = about["format"], about["method"]
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
            raise damaged from None
        if found != FORMAT:
            raise UserError(f"{path} has format {found}, but this version of oht reads format {FORMAT}.")
        if (name is None) != (method is not None):
            was = f"the method {name}, so load takes no method" if name else "a method of your own: give it again, too"
            raise UserError(f"{path} was saved with {was}.")
        try:
            fixed = {what: about[what] for what in ("tune", "base", "steps", "seed")}
            made = cls(method or name, **fixed, **about["settings"])
            made._owed = arrays.pop("owed")
            made._state = _like(made._state, arrays)
            made.env_steps, made.iteration, made._fresh = about["counters"]
            made.schedule = about["schedule"]
            if about["asked"]:
                made.ask()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged from None
        return made

    def __repr__(self) -> str:
        steps = f"{self.env_steps:,} of {self.steps:,} steps"
        return f"<AskTell {self._name or 'of your own'}: {self.population} agents, seed {self.seed}, {steps}>"

    @property
    def _title(self) -> str:
        return f"the method {self._name}" if self._name else "your method"

    def _read(self, declared: type, given: Mapping[str, Any]) -> Any:
        """The settings of the method."""
        known = settings.names(declared)
        for name in given:
            if name not in known:
                own = f"has {', '.join(known)}" if known else "has none"
                raise UserError(
                    f"unknown setting {name!r}: {self._title} {own}; hyper-parameters go into base or tune."
                )
        return settings.read(declared, given)

    def _spaces(self, chosen: Method, tune: Any, base: Any) -> tuple[Tune, dict[str, float]]:
        """What is tuned, and the base with the start of each space whose name it lacks."""
        for what, given in (("tune", tune), ("base", base)):
            if given is not None and not isinstance(given, Mapping):
                example = {"tune": "{'learning_rate': oht.LogFloat(3e-4)}", "base": "{'gamma': 0.99}"}[what]
                raise UserError(f"{what} is {given!r}, but must be a dict, as in {what}={example}.")
        known = {name: settings.number(f"{name} in base", value) for name, value in (base or {}).items()}
        for name, value in known.items():
            settings.within(f"{name} in base", value, None, None)
        if not tune:
            missing = [part for name in chosen.tune for part in spaces.tied(name) if part not in known]
            if missing:
                raise UserError(
                    f"{self._title} tunes {missing[0]}, which base does not have; say what it is to tune, "
                    "as in tune={'learning_rate': oht.LogFloat(3e-4)}."
                )
            return chosen.tune, known
        given = {name: spaces.dimension(name, space) for name, space in tune.items()}
        for name, dim in given.items():
            for part in spaces.tied(name):
                if part != "replay_ratio":  # a name that tuners know without base
                    known.setdefault(part, _start(name, dim))
        return given, known

    def _replaced(self, agents: Any) -> np.ndarray:
        """(P,) whether each agent is among these."""
        named = np.atleast_1d(np.asarray(agents))
        if named.size and (named.ndim != 1 or named.dtype.kind not in "iu"):
            raise UserError(f"replaced is {agents!r}, but must list agents by their numbers, as in [0, 2].")
        if named.size and not 0 <= named.min() <= named.max() < self.population:
            raise UserError(f"replaced is {agents!r}, but the agents are numbered 0 to {self.population - 1}.")
        return np.isin(np.arange(self.population), named)


def _count(name: str, value: Any, least: int, most: int = MOST_STEPS) -> int:
    number = settings.number(name, value, int)
    settings.within(name, number, least, most)
    return number


def _returns(returns: Any, number: int) -> np.ndarray:
    """(M,) numbers; one return need not be in a list."""
    try:
        if None in np.atleast_1d(np.asarray(returns, object)):  # a function without `return`, not a diverged agent
            raise TypeError
        values = np.atleast_1d(np.asarray(returns, np.float64))
    except (TypeError, ValueError):
        raise UserError(f"returns is {returns!r}, but must be a number for each actor.") from None
    if values.shape != (number,):
        played = (
            "one agent plays: tell takes its return" if number == 1 else f"{number} agents play: tell takes as many"
        )
        found = f"{values.size} returns" if values.ndim == 1 else f"an array of shape {values.shape}"
        raise UserError(f"{played}, not {found}.")
    return values


def _start(name: str, dim: spaces.Dimension) -> float:
    """Where the search of a dimension starts."""
    if isinstance(dim, spaces.Choice):
        return dim.values[0]
    start = spaces.resolved(name, dim)
    assert isinstance(start, spaces.Continuous)
    assert start.init is not None
    return start.init


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
    if arrays[place].shape != np.shape(state):
        raise ValueError(f"{place} has another shape")
    return arrays[place]
