"""Algorithm 1 of the paper, to be read beside it.

Everything random comes from the seed and the number of the iteration, so a state between two iterations is all that a
run needs to go on exactly as if it had never stopped.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from oht import population
from oht import replay as ring
from oht.agents.api import Algorithm, Spec
from oht.config import Config
from oht.envs.pool import Episode, Pool, open_pool
from oht.errors import UserError
from oht.population import Actors, Learner, SharedCritic
from oht.tuners.api import Proposal, Tuner

CHUNK = 2000  # updates of all agents between two looks at the clock


class Setup(NamedTuple):
    """The parts of a run that do not change."""

    config: Config
    algorithm: Algorithm
    tuner: Tuner
    learner: Learner
    actors: Actors
    pool: Pool
    eval_pool: Any  # opened when first called


class Progress(NamedTuple):
    """The parts that do: what a checkpoint holds."""

    agents: Any
    tuner: Any
    replay: ring.Replay
    owed: np.ndarray  # (P,) gradient steps that each agent has yet to take, from rounding
    iteration: int = 0
    env_steps: int = 0
    updates: int = 0  # gradient steps of all agents
    fresh: int = 0  # env steps since the last learning


COUNTERS = ("iteration", "env_steps", "updates", "fresh")  # the plain numbers among them


class Outcome(NamedTuple):
    """What an iteration has to tell."""

    returns: np.ndarray
    metrics: dict[str, float]
    schedule: dict[str, float]  # the tuner's row: the distribution that was sampled, what was drawn, what it got
    sick: list[int]


class Diverged(UserError):
    """No agent is left with finite weights."""


def build(config: Config, env: Callable | None = None) -> Setup:
    """Opens the task and joins algorithm, tuner and learner."""
    run = config.run
    where = {"workers": run.workers, "kind": run.pool}
    opened = partial(open_pool, env or run.task, delay=run.delay, max_episode=run.max_episode, **where)
    pool = opened(_tuner(config, config.algorithm(Spec(1, 1))).population)
    algorithm = config.algorithm(Spec(pool.obs, pool.action))
    config = config.with_hyper(algorithm.hyper)
    tuner, max_n = _tuner(config, algorithm), config.method.max_n(config.tuner, config.tune, config.hyper)
    return Setup(
        config=config,
        algorithm=algorithm,
        tuner=tuner,
        learner=_learner(algorithm, tuner, run.batch_size, max_n),
        actors=Actors(algorithm),
        pool=pool,
        eval_pool=cache(partial(opened, run.eval_episodes)),
    )


def _tuner(config: Config, algorithm: Algorithm) -> Tuner:
    return config.method.make(config.tuner, config.tune, {**algorithm.hyper, **config.hyper})


def _learner(algorithm: Algorithm, tuner: Tuner, batch_size: int, max_n: int) -> Learner:
    if tuner.shared_critic:
        return SharedCritic(algorithm, batch_size, max_n)
    return Learner(algorithm, batch_size, max_n, tuner.own_replays)


def start(setup: Setup) -> Progress:
    """New agents, an empty replay."""
    agents_key, tuner_key = jax.random.split(_key(setup, "start", 0))
    number = setup.tuner.population
    agents = population.create(agents_key, setup.algorithm, number)
    return Progress(agents, setup.tuner.init(tuner_key), _empty_replay(setup), np.zeros(number))


def _empty_replay(setup: Setup) -> ring.Replay:
    """One ring for all, or one for each agent that has an equal share of the size."""
    run, number = setup.config.run, setup.tuner.population
    if not setup.tuner.own_replays:
        return ring.empty(run.replay_size, setup.pool.obs, setup.pool.action)
    slots = run.replay_size // number
    if slots <= run.max_episode:
        raise UserError(
            f"replay_size {run.replay_size} gives each of {number} agents {slots} places, which cannot hold an episode "
            f"of max_episode {run.max_episode}; make it larger."
        )
    return population.own_replays(number, slots, setup.pool.obs, setup.pool.action)


def explore_at_random(setup: Setup, t: Progress) -> Progress:
    """Episodes of uniform actions, played by nobody; not more at once than the random start still needs."""
    run = setup.config.run
    key = _key(setup, "random start", t.env_steps)
    missing = -(-(run.start_steps - t.env_steps) // run.max_episode)
    seeds = _seeds(key, min(missing, setup.pool.size))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    shape = (len(seeds), setup.pool.action)
    episodes = setup.pool.rollout(lambda _, __: rng.uniform(-1, 1, shape).astype(np.float32), seeds)
    t = _stored(setup, t, episodes)
    return t if setup.tuner.prime else t._replace(fresh=0)


def iterate(setup: Setup, t: Progress, look: Callable[[int, int], None]) -> tuple[Progress, Outcome]:
    """One turn of Algorithm 1. `look` is told how many of how many gradient steps are done."""
    k3, k4, k5, k6 = _iteration_keys(setup, t.iteration)
    tuner_state, proposal = setup.tuner.ask(k3, t.tuner, t.agents, t.env_steps)  # line 3
    agents, owed, updates, metrics = learn(setup, k4, t, proposal, look)  # line 4
    agents, sick = heal(setup, k6, t, agents, tuner_state, proposal.hyper)
    proposal = proposal._replace(hyper={**proposal.hyper, **population.learned(setup.algorithm, agents)}, sick=sick)
    _, _, starts, _ = _iteration_keys(setup, t.iteration - proposal.since)
    episodes = play(setup, k5, starts, agents, proposal)  # line 5
    returns = np.array([episode.total for episode in episodes])
    returns[np.isin(proposal.actors, sick)] = -np.inf
    schedule = setup.tuner.record(tuner_state, proposal, returns.tolist())
    tuner_state, agents = setup.tuner.tell(k6, tuner_state, agents, proposal, returns)  # line 6
    t = t._replace(
        agents=agents, tuner=tuner_state, owed=owed, iteration=t.iteration + 1, updates=t.updates + updates, fresh=0
    )
    return _stored(setup, t, episodes, proposal.actors), Outcome(returns, metrics, schedule, sick)


def learn(setup: Setup, key, t: Progress, proposal: Proposal, look: Callable[[int, int], None]):
    """psi_{t+1}^(j) <- psi_t^(j) + f(psi_t^(j), D, eta_t^(j)), each agent as often as its ratio says."""
    owed = t.owed + proposal.ratios * t.fresh
    batches = setup.algorithm.batches
    updates = (owed // batches).astype(int) * batches
    agents, done, sums = proposal.agents, 0, {}
    for number in sorted(set(updates.tolist()) - {0}):
        members = np.flatnonzero(updates == number)
        some = population.take(agents, members)
        hyper = _values(proposal.hyper, members)
        replay = _replay_of(setup, t, members)
        chunk = number if setup.learner.whole else max(CHUNK // len(members) // batches, 1) * batches
        for first in range(0, number, chunk):
            key, chunk_key = jax.random.split(key)
            size = min(chunk, number - first)
            some, metrics = setup.learner.learn(chunk_key, some, replay, hyper, size)
            for name, values in metrics.items():
                sums[name] = sums.get(name, 0.0) + float(values.sum()) * size
            done += size * len(members)
            look(done, int(updates.sum()))
        agents = some if len(members) == len(updates) else population.put(agents, members, some)
    return agents, owed - updates, done, {name: total / done for name, total in sums.items()}


def heal(setup: Setup, key, t: Progress, agents, tuner_state, hyper) -> tuple[Any, list[int]]:
    """Replaces agents that learn no more by the champion, or by any healthy one.

    Their weights are no longer finite or, where the tuner minds, all their actions are stuck at the bounds. If nobody
    is free, they start again. A champion that is stuck stays: once it has played, it may be right to be there.
    """
    everyone = np.arange(setup.tuner.population)
    finite = population.finite(agents)
    if not finite.any():
        raise Diverged(
            "the weights of every agent became infinite or NaN; a smaller learning rate would help "
            "(the checkpoint holds the state from before)."
        )
    champion = setup.tuner.champion(key, tuner_state)
    stuck = np.zeros_like(finite)
    if setup.tuner.unstick:
        stuck = finite & setup.actors.saturated(key, agents, _values(hyper, everyone), t.replay)
    free, ill = finite & ~stuck, ~finite | (stuck & ((everyone != champion) | (t.iteration == 0)))
    if not ill.any():
        return agents, []
    members = np.flatnonzero(ill)
    if not free.any():
        return population.put(agents, members, population.create(key, setup.algorithm, len(members))), []
    donor = champion if free[champion] else int(np.flatnonzero(free)[0])
    return population.put(agents, members, population.take(agents, np.full(len(members), donor))), members.tolist()


def play(setup: Setup, key, starts, agents, proposal: Proposal) -> list[Episode]:
    """One whole episode of each actor, with exploration noise unless the tuner wants none."""
    actors = proposal.actors
    seeds = np.array(_seeds(starts if setup.tuner.same_start else key, len(actors)))
    if setup.tuner.same_start:  # the first episode of each actor from one state, the second of each from another, ...
        seeds = seeds[[np.count_nonzero(actors[:i] == actor) for i, actor in enumerate(actors)]]
    return _rollouts(setup, setup.pool, key, agents, proposal.hyper, actors, seeds.tolist(), setup.tuner.explore)


def evaluate(setup: Setup, t: Progress, key=None, number: int | None = None) -> list[float]:
    """Returns of the champion without noise, on envs of its own; neither stored nor counted."""
    key = _key(setup, "evaluation", t.iteration) if key is None else key
    play_key, *champion_keys = jax.random.split(key, 1 + (number or setup.config.run.eval_episodes))
    champions = np.array([setup.tuner.champion(k, t.tuner) for k in champion_keys])
    hyper = {name: np.full(setup.tuner.population, value) for name, value in setup.config.hyper.items()}
    seeds = _seeds(play_key, len(champions))
    episodes = _rollouts(setup, setup.eval_pool(), play_key, t.agents, hyper, champions, seeds, explore=False)
    return [episode.total for episode in episodes]


def _rollouts(
    setup: Setup, pool: Pool, key, agents, hyper, actors: np.ndarray, seeds: list[int], explore: bool
) -> list[Episode]:
    """As many episodes at once as the pool has room for."""
    episodes: list[Episode] = []
    for wave, first in enumerate(range(0, len(actors), pool.size)):
        wave_key = jax.random.fold_in(key, wave)
        members = actors[first : first + pool.size]
        act = setup.actors.policies(wave_key, population.take(agents, members), _values(hyper, members), explore)
        episodes += pool.rollout(act, seeds[first : first + pool.size])
    return episodes


def _values(hyper: Mapping[str, np.ndarray], members: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.asarray(values[members], np.float32) for name, values in hyper.items()}


def close(setup: Setup) -> None:
    """Ends the simulators."""
    setup.pool.close()
    if setup.eval_pool.cache_info().currsize:
        setup.eval_pool().close()


def _replay_of(setup: Setup, t: Progress, members: np.ndarray) -> ring.Replay:
    """What these agents learn from."""
    everyone = len(members) == setup.tuner.population
    return population.take(t.replay, members) if setup.tuner.own_replays and not everyone else t.replay


def _stored(setup: Setup, t: Progress, episodes: list[Episode], actors: np.ndarray | None = None) -> Progress:
    """Episodes go to the one ring, or each to its actor's own; those of nobody (the random start) to every one."""
    replay = t.replay
    for number, episode in enumerate(episodes):
        if setup.tuner.own_replays:
            for member in range(setup.tuner.population) if actors is None else (int(actors[number]),):
                replay = population.store(replay, member, episode)
        else:
            replay = ring.extend(replay, *episode)
    steps = sum(len(episode.reward) for episode in episodes)
    return t._replace(replay=replay, env_steps=t.env_steps + steps, fresh=t.fresh + steps)


def _key(setup: Setup, purpose: str, number: int):
    purposes = ("start", "random start", "iteration", "evaluation")
    root = jax.random.fold_in(jax.random.key(setup.config.run.seed), purposes.index(purpose))
    return jax.random.fold_in(root, number)


def _iteration_keys(setup: Setup, number: int):
    """Of the lines 3, 4, 5 and 6 of one iteration."""
    return jax.random.split(_key(setup, "iteration", number), 4)


def _seeds(key, number: int) -> list[int]:
    return np.asarray(jax.random.randint(jax.random.fold_in(key, 1), (number,), 0, 2**31 - 1)).tolist()
