"""How fast a population of AgileRL's TD3 agents learns HalfCheetah-v5. Prints one JSON object.

    python benchmarks/agilerl_population.py --generations 1

AgileRL's own training loop runs: in each generation every agent in turn plays and learns, with a gradient step for each
env step, and is evaluated; a tournament then chooses who goes on, and mutations change networks, weights and learning
rates. Probabilities, tournament and the bounds of the rates are those of the TD3 example in its repository. There a
generation has 10 000 steps of each agent and evaluates whole episodes; here both are a tenth of that.

Runs in the peers' own Python; populations.py calls it.
"""
# pyright: reportMissingImports=false

import argparse
import json
import time
from collections import Counter, defaultdict
from importlib import metadata
from typing import Any

import gymnasium
import torch
from agilerl.algorithms import TD3
from agilerl.algorithms.core.registry import HyperparameterConfig, RLParameter
from agilerl.components import ReplayBuffer
from agilerl.hpo.mutation import Mutations
from agilerl.hpo.tournament import TournamentSelection
from agilerl.modules.mlp import EvolvableMLP
from agilerl.training.train_off_policy import train_off_policy
from agilerl.utils.utils import make_vect_envs

ENV = "HalfCheetah-v5"
PROBABILITIES = {
    "no_mutation": 0.4,
    "architecture": 0.2,
    "new_layer_prob": 0.2,
    "parameters": 0.2,
    "activation": 0.0,  # AgileRL has none for TD3
    "rl_hp": 0.2,
}


class Stopwatch:
    """How often some methods were called since the last reset, and the seconds in them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.calls: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self.since = time.perf_counter()

    def watch(self, owner: type, name: str) -> None:
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = method(*args, **kwargs)
            self.seconds[name] += time.perf_counter() - start
            self.calls[name] += 1
            return result

        setattr(owner, name, timed)


class Tournament(TournamentSelection):
    """Notes how many weights the agents have that have just learned: mutations change that, and so the work."""

    def __init__(self, population: int):
        super().__init__(tournament_size=2, elitism=True, population_size=population)
        self.weights: list[int] = []

    def select(self, population: list[Any]) -> Any:
        self.weights += map(weights, population)
        return super().select(population)


class Evolution(Mutations):
    """Notes the mutations, which end a generation. The clock starts after those before the first one."""

    def __init__(self, stopwatch: Stopwatch, seed: int):
        super().__init__(**PROBABILITIES, mutation_sd=0.1, rand_seed=seed)
        self.stopwatch, self.kinds, self.end = stopwatch, Counter(), 0.0

    def mutation(self, population: list[Any], pre_training_mut: bool = False, indices: Any = None) -> list[Any]:
        mutated = super().mutation(population, pre_training_mut, indices)
        if pre_training_mut:
            self.stopwatch.reset()
        else:
            self.kinds.update(agent.mut for agent in mutated)
            self.end = time.perf_counter()
        return mutated


class Critic(EvolvableMLP):
    """Observation and action into a plain network; AgileRL's own has one more layer, between encoder and head."""

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat([obs, actions], dim=-1))


def weights(agent: Any) -> int:
    networks = agent.actor, agent.critic_1, agent.critic_2
    return sum(weight.numel() for network in networks for weight in network.parameters())


def agents(number: int, hidden: list[int], batch: int, envs: int) -> list[Any]:
    """Each with learning rates to mutate of its own; the batch and the number of gradient steps stay as they are."""
    env = gymnasium.make(ENV)
    obs, action = env.observation_space, env.action_space
    inputs, outputs = gymnasium.spaces.flatdim(obs), gymnasium.spaces.flatdim(action)

    def one(index: int) -> Any:
        rates = {name: RLParameter(min=1e-4, max=1e-2) for name in ("lr_actor", "lr_critic")}
        return TD3(
            obs,
            action,
            index=index,
            hp_config=HyperparameterConfig(**rates),
            actor_network=EvolvableMLP(inputs, outputs, [*hidden], output_activation="Tanh", layer_norm=False),
            critic_networks=[Critic(inputs + outputs, 1, [*hidden], layer_norm=False) for _ in range(2)],
            batch_size=batch,
            lr_actor=1e-3,
            lr_critic=1e-3,
            learn_step=1,
            policy_freq=2,
            O_U_noise=False,
            expl_noise=0.1,
            vect_noise_dim=envs,
        )

    return [one(index) for index in range(number)]


def train(population: list[Any], memory: Any, envs: int, steps: int, generations: int, **evolution: Any) -> None:
    """`steps` of each agent in each generation, and an evaluation of a tenth of that."""
    train_off_policy(
        gymnasium.make(ENV) if envs == 1 else make_vect_envs(ENV, envs),
        ENV,
        "TD3",
        population,
        memory,
        max_steps=population[0].steps + generations * steps,
        evo_steps=steps,
        eval_steps=steps // 10,
        verbose=False,
        **evolution,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--population", type=int, default=10)
    parser.add_argument("--hidden", type=int, nargs="+", default=[300, 300])
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--envs", type=int, default=8, help="an agent plays in so many at once; in its example 16")
    parser.add_argument("--warm-up", type=int, default=80, help="steps of each agent before, not timed")
    parser.add_argument("--steps", type=int, default=1000, help="of each agent in a generation, a multiple of envs")
    parser.add_argument("--generations", type=int, default=1, help="generations that are timed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.steps % args.envs or args.warm_up % args.envs:
        parser.error("steps and warm-up must be multiples of envs.")

    stopwatch = Stopwatch()
    evolution, tournament = Evolution(stopwatch, args.seed), Tournament(args.population)
    population = agents(args.population, args.hidden, args.batch, args.envs)
    new, memory = weights(population[0]), ReplayBuffer(max_size=1_000_000)
    for owner, name in ((TD3, "learn"), (ReplayBuffer, "sample"), (TD3, "test")):
        stopwatch.watch(owner, name)
    train(population, memory, args.envs, args.warm_up, 1)
    before = len(memory)
    train(
        population,
        memory,
        args.envs,
        args.steps,
        args.generations,
        selection_strategy=tournament,
        mutation=evolution,
    )
    result = {
        "version": metadata.version("agilerl"),
        "updates": stopwatch.calls["learn"],
        "steps": len(memory) - before,
        "seconds": evolution.end - stopwatch.since,
        "learning_seconds": stopwatch.seconds["learn"] + stopwatch.seconds["sample"],
        "evaluation_seconds": stopwatch.seconds["test"],
        "mutations": evolution.kinds,
        "weights": sum(tournament.weights) / len(tournament.weights) / new,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
