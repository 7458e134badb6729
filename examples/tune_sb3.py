"""Stable-Baselines3's TD3 (PyTorch) on Pendulum-v1, tuned while it learns.

Five models that share one replay buffer differ in learning rate and gamma; `oht.AskTell` says which of them plays and
how many gradient steps each takes. The run's own learning rate, 1e-5, is one with which TD3 does not learn.

    python examples/tune_sb3.py
"""
# pyright: reportMissingImports=false

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

import oht


def tune(tuner: oht.AskTell, agents: Sequence[Any]) -> None:
    """The whole loop, for any agents with `copy`, `learn` and `play`."""
    while not tuner.finished:
        plan = tuner.ask()
        for agent, source in zip(agents, plan.sources, strict=True):
            agent.copy(agents[source])
        for agent, values, updates in zip(agents, plan.values, plan.updates, strict=True):
            agent.learn(values, updates)
        episodes = [agents[j].play(seed, plan.explore) for j, seed in zip(plan.actors, plan.seeds, strict=True)]
        tuner.tell([total for total, _ in episodes], sum(steps for _, steps in episodes))


class Agent:
    """A model of Stable-Baselines3; its replay buffer and its env are those of all."""

    def __init__(self, model: Any, replay: Any, env: gymnasium.Env):
        self.model, self.replay, self.env = model, replay, env
        model.replay_buffer = replay

    def copy(self, other: "Agent") -> None:
        if other is not self:  # networks, targets and optimisers
            self.model.set_parameters(other.model.get_parameters())

    def learn(self, values: dict[str, float], updates: int) -> None:
        self.model.gamma = values["gamma"]
        self.model.lr_schedule = lambda _: values["learning_rate"]
        if updates:
            self.model.train(gradient_steps=updates, batch_size=self.model.batch_size)

    def play(self, seed: int, explore: bool, random: bool = False) -> tuple[float, int]:
        """The return and the steps of an episode, which goes into the replay buffer if it explores."""
        rng, (obs, _), total, steps, over = np.random.default_rng(seed), self.env.reset(seed=seed), 0.0, 0, False
        while not over:
            action = self.model.policy.scale_action(self.model.predict(obs, deterministic=True)[0])  # to [-1, 1]
            noise = rng.uniform(-1, 1, action.shape) if random else 0.1 * explore * rng.standard_normal(action.shape)
            action = np.clip(noise if random else action + noise, -1, 1)
            after, reward, terminal, cut, _ = self.env.step(self.model.policy.unscale_action(action))
            if explore:
                self.replay.add(obs, after, action, np.array(reward), np.array(terminal), [{}])
            obs, total, steps, over = after, total + float(reward), steps + 1, terminal or cut
        return total, steps


def main(steps: int = 10_000, method: str = "oht", seed: int = 0, **settings: Any) -> tuple[oht.AskTell, float]:
    import torch
    from stable_baselines3 import TD3
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.logger import configure

    torch.set_num_threads(1)  # small networks are not faster with more
    space = {"learning_rate": oht.LogFloat(low=1e-5, high=1e-2), "gamma": oht.Float(low=0.95, high=0.995)}
    tuner = oht.AskTell(method, space, base={"learning_rate": 1e-5}, steps=steps, seed=seed, **settings)
    env, net = gymnasium.make("Pendulum-v1"), {"net_arch": [64, 64]}
    replay = ReplayBuffer(steps + 1000, env.observation_space, env.action_space, device="cpu")
    models = [TD3("MlpPolicy", env, policy_kwargs=net, seed=seed + j, device="cpu") for j in range(tuner.population)]
    for model in models:
        model.set_logger(configure(None, []))
    agents = [Agent(model, replay, env) for model in models]
    tuner.add_steps(sum(agents[0].play(start, explore=True, random=True)[1] for start in range(5)))
    tune(tuner, agents)
    best = agents[tuner.champion]
    return tuner, float(np.mean([best.play(start, explore=False)[0] for start in range(1000, 1010)]))


if __name__ == "__main__":
    tuner, score = main(population=5)
    row = tuner.schedule[-1]
    for j in range(tuner.population):
        rate, gamma, mean, error = (row[f"agent/{j}/{name}"] for name in ("learning_rate", "gamma", "mean", "error"))
        print(f"agent {j}: learning rate {rate:.1e}, gamma {gamma:.3f}, belief {mean:.0f} +- {error:.0f}")
    print(f"champion: agent {tuner.champion}, mean return {score:.0f} over ten episodes without noise")
