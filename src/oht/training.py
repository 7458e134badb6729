"""Algorithm 1 of the paper, to be read beside it.

Everything random comes from the seed and the number of the iteration, so a state between two iterations is all that a
run needs to continue exactly as if it had never stopped.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from oht import health, population, seeds
from oht import replay as ring
from oht.config import Config
from oht.contract import checked
from oht.envs.gym import maker
from oht.envs.pool import Dropped, Pool, open_pool
from oht.envs.tasks import find
from oht.errors import UserError
from oht.health import Health
from oht.population import Actors, Learner, Report
from oht.types import Algorithm, Clock, Episode, Hyper, Outcome, Proposal, Row, Spec, Tuner


class Setup(NamedTuple):
    """The parts of a run that do not change."""

    config: Config
    algorithm: Algorithm
    tuner: Tuner
    learner: Learner
    actors: Actors
    eval_pool: Pool
    env: Callable | None  # the user's function that makes an env, where the task is not a name
    pool: Any  # where the population plays; opened when first called
    unstick: bool  # whether saturated agents are replaced


class Progress(NamedTuple):
    """The parts of a run that change: what a checkpoint holds."""

    agents: Any
    tuner: Any
    replay: ring.Replay
    owed: np.ndarray  # (P,) gradient steps that are due but were not taken, because of rounding
    iteration: int = 0
    env_steps: int = 0
    updates: int = 0  # gradient steps of all agents
    fresh: int = 0  # env steps since the last learning


COUNTERS = ("iteration", "env_steps", "updates", "fresh")  # the plain numbers among them


class Champion(NamedTuple):
    """The agent that is deployed."""

    state: Any  # NumPy arrays
    hyper: dict[str, float]  # its hyper-parameters
    env_steps: int  # of the run, when it was as it is here


class Results(NamedTuple):
    """What an iteration brings beside the new progress."""

    returns: np.ndarray
    metrics: dict[str, float]
    schedule: Row
    health: Health
    sources: np.ndarray  # (P,) whose weights each agent continued from, as in the proposal


def build(config: Config, env: Callable | None = None) -> Setup:
    """Open the task and make algorithm, tuner and learner."""
    run, method = config.run, config.method
    where = {"workers": run.workers, "kind": run.pool}
    what = {"env_kwargs": config.env_kwargs, "env_errors": run.env_errors}
    opened = partial(open_pool, env or run.task, delay=run.delay, max_episode=run.max_episode, **what, **where)
    eval_pool = opened(run.eval_episodes)
    try:
        algorithm = config.algorithm(Spec(eval_pool.obs, eval_pool.action))
        config = config.with_hyper(algorithm.hyper)
        tuner = method.make(config.tuner, config.tune, config.hyper)
        tuner = checked(tuner, f"the method {run.method}", config.hyper, bounded=True)
        learner = method.learner(config.tuner, algorithm, run.batch_size) if method.learner else None
        learner = learner or Learner(algorithm, run.batch_size)
        if run.overlap and learner.draws:
            raise UserError(f"{run.method} plays what it has just drawn, so overlap must be false.")
    except BaseException:
        eval_pool.close()
        raise
    return Setup(
        config=config,
        algorithm=algorithm,
        tuner=tuner,
        learner=learner,
        actors=Actors(algorithm),
        eval_pool=eval_pool,
        env=env,
        pool=cache(partial(opened, tuner.population)),
        unstick=tuner.population > 1 if run.unstick is None else run.unstick,
    )


def check_env(config: Config) -> None:
    """Refuse a task by whose name no env is found."""
    task = find(config.run.task)
    if task.backend == "gymnasium":
        maker(task)


def start(setup: Setup) -> Progress:
    """New agents, an empty replay."""
    number, run, pool = setup.tuner.population, setup.config.run, setup.eval_pool
    agents = population.create(seeds.key(run.seed, "agents"), setup.algorithm, number)
    replay = setup.learner.empty_replay(number, run.replay_size, pool.obs, pool.action, run.max_episode)
    return Progress(agents, new_tuner_state(setup), replay, np.zeros(number))


def new_tuner_state(setup: Setup) -> Any:
    return setup.tuner.init(seeds.generator(setup.config.run.seed, "tuner"))


def explore_at_random(setup: Setup, t: Progress) -> Progress:
    """Play episodes of uniform random actions, not more at once than the random start still needs."""
    run, pool = setup.config.run, setup.pool()
    missing = -(-(run.start_steps - t.env_steps) // run.max_episode)
    rng = seeds.generator(run.seed, "random start", t.env_steps)
    starts = rng.integers(seeds.MOST, size=min(missing, pool.size)).tolist()
    shape = (len(starts), pool.action)
    episodes = pool.rollout(lambda _, __: rng.uniform(-1, 1, shape).astype(np.float32), starts)
    return _stored(setup, t, episodes, None)


def planned(setup: Setup, t: Progress) -> tuple[Any, Proposal]:
    """What the tuner wants of the next iteration, and its state then; after the last one, of one more like it."""
    run = setup.config.run
    clock = Clock(min(t.env_steps, run.steps - 1), run.steps, t.iteration)
    return setup.tuner.ask(seeds.generator(run.seed, "ask", t.iteration), t.tuner, clock)


def iterate(setup: Setup, t: Progress, report: Report) -> tuple[Progress, Results]:
    """One iteration of Algorithm 1. `report(done, of)` is called with numbers of gradient steps."""
    run = setup.config.run
    key = partial(seeds.key, run.seed, number=t.iteration)
    rng = partial(seeds.generator, run.seed, number=t.iteration)
    tuner_state, p = planned(setup, t)  # line 3
    agents = population.gather(key("new weights"), setup.algorithm, t.agents, p.sources)
    donor = setup.tuner.champion(rng("donor"), tuner_state)
    if run.overlap:  # the policies from before this learning play, while it goes on
        setup.pool()  # opened in this thread, whichever plays
        with ThreadPoolExecutor(1) as thread:
            playing = thread.submit(play, setup, key("noise"), agents, p)
            agents, owed, updates, metrics, states = train(setup, key, t, agents, p, donor, report)
        episodes = playing.result()
    else:
        agents, owed, updates, metrics, states = train(setup, key, t, agents, p, donor, report)  # line 4
        episodes = play(setup, key("noise"), agents, p)  # line 5
    outcome = summarise(setup, agents, p, episodes, states.replaced)
    agents = setup.learner.evolve(agents, p, outcome)
    tuner_state, row = setup.tuner.tell(rng("tell"), tuner_state, p, outcome)  # line 6
    t = t._replace(agents=agents, tuner=tuner_state, owed=owed, iteration=t.iteration + 1, updates=t.updates + updates)
    t = _stored(setup, t._replace(fresh=0), episodes, p.actors)
    return t, Results(outcome.returns, metrics, row, states, p.sources)


def train(setup: Setup, key: Callable, t: Progress, agents, p: Proposal, donor: int, report: Report):
    """The agents after learning, with healthy weights in place of those that cannot learn any more."""
    agents, owed, updates, metrics = learn(setup, key("learn"), t, agents, p, report)
    obs = setup.learner.observations(key("health"), t.replay, health.LOOKS)
    agents, states = health.check(
        key("healthy weights"), setup.algorithm, agents, p.hyper, obs, donor, setup.unstick, t.iteration > 0
    )
    return agents, owed, updates, metrics, states


def learn(setup: Setup, key, t: Progress, agents, p: Proposal, report: Report):
    """psi_{t+1}^(j) <- psi_t^(j) + f(psi_t^(j), D, eta_t^(j)), each agent as often as its ratio says."""
    owed = t.owed + p.ratios * t.fresh
    batches = setup.algorithm.batches
    updates = (owed // batches).astype(int) * batches
    agents, metrics = setup.learner.learn(key, agents, t.replay, p.hyper, updates, report)
    return agents, owed - updates, int(updates.sum()), metrics


def play(setup: Setup, key, agents, p: Proposal) -> list[Episode]:
    """One whole episode of each actor."""
    starts = [seeds.start(setup.config.run.seed, int(number)) for number in p.starts]
    return _rollouts(setup, setup.pool(), key, agents, p.hyper, p.actors, starts, p.explore)


def summarise(setup: Setup, agents, p: Proposal, episodes: list[Episode], replaced: np.ndarray) -> Outcome:
    """The outcome of an iteration, for the tuner."""
    returns = np.array([episode.total for episode in episodes])
    returns[replaced[p.actors]] = -np.inf
    return Outcome(returns, replaced, population.learned(setup.algorithm, agents))


def values_now(setup: Setup, t: Progress) -> dict[str, np.ndarray]:
    """(P,) the value of every hyper-parameter for each agent, as the next iteration has it."""
    _, p = planned(setup, t)
    return {name: p.hyper[name] for name in setup.config.hyper}


def champion(setup: Setup, t: Progress) -> Champion:
    """The agent that is deployed; as NumPy arrays, because slicing in JAX would compile for each shape."""
    member = setup.tuner.deployed(seeds.generator(setup.config.run.seed, "policy"), t.tuner)
    hyper = {name: float(values[member]) for name, values in values_now(setup, t).items()}
    return Champion(jax.tree.map(lambda leaf: np.asarray(leaf)[member], t.agents), hyper, t.env_steps)


def evaluate(
    setup: Setup, t: Progress, seed: int | None = None, number: int | None = None, hyper: Hyper | None = None
) -> list[float]:
    """Returns of the champion without noise, on envs of its own; neither stored nor counted.

    With a `seed` the episodes are those of that seed, otherwise those of the run at this iteration. `hyper` are the
    (P,) hyper-parameters of the agents, if they are not those of `values_now`.
    """
    run = setup.config.run
    champions, starts = evaluation_plan(setup, t, seed, number or run.eval_episodes)
    hyper = hyper or values_now(setup, t)
    key = seeds.key(*_evaluation(setup, t, seed))
    episodes = _rollouts(setup, setup.eval_pool, key, t.agents, hyper, champions, starts, explore=False)
    return [episode.total for episode in episodes]


def evaluation_plan(setup: Setup, t: Progress, seed: int | None, number: int) -> tuple[np.ndarray, list[int]]:
    """Who plays the episodes of an evaluation, and the seed of each."""
    rng = seeds.generator(*_evaluation(setup, t, seed))
    champions = np.array([setup.tuner.champion(rng, t.tuner) for _ in range(number)])
    return champions, rng.integers(seeds.MOST, size=number).tolist()


def _evaluation(setup: Setup, t: Progress, seed: int | None) -> Any:
    """The random stream of an evaluation."""
    return (setup.config.run.seed, "evaluation", t.iteration) if seed is None else (seed, "evaluation on demand")


def _rollouts(
    setup: Setup, pool: Pool, key, agents, hyper, actors: np.ndarray, starts: list[int], explore: bool
) -> list[Episode]:
    """An episode for each actor, as many at once as the pool has envs."""
    episodes: list[Episode] = []
    for wave, first in enumerate(range(0, len(actors), pool.size)):
        wave_key = seeds.folded(key, wave)
        members = actors[first : first + pool.size]
        eta = population.values_of(hyper, members)
        act = setup.actors.policies(wave_key, population.take(agents, members), eta, explore)
        episodes += pool.rollout(act, starts[first : first + pool.size])
    return episodes


def take_dropped(setup: Setup) -> list[Dropped]:
    """The episodes that were dropped since the last call, because the env failed in them."""
    dropped = [episode for pool in _pools(setup) for episode in pool.dropped]
    for pool in _pools(setup):
        pool.dropped.clear()
    return dropped


def close(setup: Setup) -> None:
    """Close the envs."""
    for pool in _pools(setup):
        pool.close()


def _pools(setup: Setup) -> list[Pool]:
    """Those that are open."""
    return [setup.eval_pool, *([setup.pool()] if setup.pool.cache_info().currsize else [])]


def _stored(setup: Setup, t: Progress, episodes: list[Episode], actors: np.ndarray | None) -> Progress:
    """The progress with these episodes in the replay; `actors` is None where actions were random."""
    replay = setup.learner.store(t.replay, episodes, actors)
    steps = sum(len(episode.reward) for episode in episodes)
    return t._replace(replay=replay, env_steps=t.env_steps + steps, fresh=t.fresh + steps)
