"""Records updates of Stable-Baselines3 and SBX into tests/data/, for test_peers_updates.py to compare ours with.

Run with a Python that has the peers:

    pip install stable-baselines3 sbx-rl && python tests/record_peer_updates.py

A file holds the weights before and after each update, the minibatches, the standard normal numbers that the peer was
given in place of its own random ones, its losses, and its Adam moments at the end. Weights are stored as
`WHEN.NETWORK.LAYER.kernel` (inputs x outputs) and `.bias`; critics have a leading axis for the twins.
"""
# pyright: reportMissingImports=false

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import jax
import numpy as np
import sbx
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples

OBS, ACTION, HIDDEN, ROWS, UPDATES = 5, 2, (12, 8), 8, 4
ACTOR_LR, CRITIC_LR, ALPHA_LR, TAU, ALPHA = 1e-3, 2e-3, 3e-3, 0.05, 0.2
DATA = Path(__file__).parent / "data"

Arrays = dict[str, np.ndarray]


class Nothing(gymnasium.Env):
    """The peers want an environment to know its spaces; it is never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)


class Minibatches:
    """In place of the peer's replay buffer. Some rows are terminal; discounts differ, as n-step returns make them."""

    def __init__(self, random: np.random.Generator):
        self.random = random
        self.given: list[Arrays] = []

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape).astype(np.float32)

    def sample(self, rows: int, env: object = None) -> ReplayBufferSamples:
        batch = {
            "obs": self.normal(rows, OBS),
            "action": np.tanh(self.normal(rows, ACTION)),
            "next_obs": self.normal(rows, OBS),
            "done": (np.arange(rows) % 3 == 1).astype(np.float32)[:, None],
            "reward": self.normal(rows, 1),
            "discount": self.random.choice([0.99, 0.99**2, 0.99**3], (rows, 1)).astype(np.float32),
        }
        self.given.append(batch)
        return ReplayBufferSamples(*(torch.as_tensor(value) for value in batch.values()))


class Losses(Logger):
    """What the peer logs of each update."""

    def __init__(self):
        super().__init__(folder=None, output_formats=[])
        self.updates: list[dict[str, Any]] = []

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        if key == "train/n_updates":
            self.updates.append({})
        elif key.endswith(("_loss", "ent_coef")):
            self.updates[-1][key.removeprefix("train/")] = np.float32(value)


def layers_of_torch(module: Any, of: Any = lambda parameter: parameter) -> list[list[np.ndarray]]:
    """[kernel, bias] of each linear layer; `of` chooses what is read: the parameter or an Adam moment of it."""
    linear = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
    return [[of(part.weight).detach().numpy().T.copy(), of(part.bias).detach().numpy().copy()] for part in linear]


def layers_of_flax(params: Any) -> list[list[np.ndarray]]:
    while "Dense_0" not in params:
        (params,) = params.values()
    return [[np.array(params[name]["kernel"]), np.array(params[name]["bias"])] for name in sorted(params)]


def joined(layers: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    """The peers' Gaussian actors end in two layers, mean and log standard deviation; ours are the two halves of one."""
    ends = [np.concatenate(pair, axis=-1) for pair in zip(*layers[-2:], strict=True)]
    return [*layers[:-2], ends]


def twins(critics: list[list[list[np.ndarray]]]) -> list[list[np.ndarray]]:
    return [[np.stack(values) for values in zip(*layer, strict=True)] for layer in zip(*critics, strict=True)]


def named(prefix: str, layers: list[list[np.ndarray]]) -> Arrays:
    return {
        f"{prefix}.{number}.{name}": value
        for number, layer in enumerate(layers)
        for name, value in zip(("kernel", "bias"), layer, strict=True)
    }


class TorchPeer:
    """A Stable-Baselines3 model; its targets start away from its networks, its three learning rates differ."""

    def __init__(self, model: Any):
        self.model, self.gaussian = model, isinstance(model, sb3.SAC)
        rates = {model.actor.optimizer: ACTOR_LR, model.critic.optimizer: CRITIC_LR}
        if self.gaussian:
            # SB3 adds this to 1 - tanh(u)^2 against log(0); ours is the same number without the addition.
            model.actor.action_dist.epsilon = 0.0
            if model.ent_coef_optimizer is not None:
                rates[model.ent_coef_optimizer] = ALPHA_LR
        for optimizer, rate in rates.items():
            optimizer.param_groups[0]["lr"] = rate
        model._update_learning_rate = lambda optimizers: None
        with torch.no_grad():
            for target in self.targets().values():
                for parameter in target.parameters():
                    parameter.add_(0.1 * torch.randn(parameter.shape))

    def targets(self) -> dict[str, Any]:
        if self.gaussian:
            return {"target_critic": self.model.critic_target}
        return {"target_actor": self.model.actor_target, "target_critic": self.model.critic_target}

    def layers(self, module: Any, of: Any = lambda parameter: parameter) -> list[list[np.ndarray]]:
        if hasattr(module, "q_networks"):
            return twins([layers_of_torch(network, of) for network in module.q_networks])
        return joined(layers_of_torch(module, of)) if self.gaussian else layers_of_torch(module, of)

    def weights(self, when: str) -> Arrays:
        networks = {"actor": self.model.actor, "critic": self.model.critic} | self.targets()
        found = {}
        for name, module in networks.items():
            found |= named(f"{when}.{name}", self.layers(module))
        if self.gaussian and self.model.ent_coef_optimizer is not None:
            found[f"{when}.log_alpha"] = self.model.log_ent_coef.detach().numpy().copy().squeeze()
        return found

    def moments(self) -> Arrays:
        found = {}
        for name, module in {"actor": self.model.actor, "critic": self.model.critic}.items():
            for ours, theirs in {"mu": "exp_avg", "nu": "exp_avg_sq"}.items():
                state = module.optimizer.state
                layers = self.layers(module, lambda parameter, state=state, theirs=theirs: state[parameter][theirs])
                found |= named(f"end.{name}_{ours}", layers)
        return found

    def hyper(self) -> dict[str, float]:
        rates = {"actor_lr": ACTOR_LR, "critic_lr": CRITIC_LR, "tau": TAU}
        if not self.gaussian:
            return rates
        if self.model.ent_coef_optimizer is None:
            return rates | {"alpha": ALPHA}
        return rates | {"alpha_lr": ALPHA_LR, "target_entropy": self.model.target_entropy}

    def update(self, noise: Iterator[np.ndarray]) -> None:
        def normal_(tensor: torch.Tensor, mean: float, std: float) -> torch.Tensor:
            return tensor.copy_(mean + std * torch.as_tensor(next(noise)))

        def standard_normal(shape: Any, dtype: Any, device: Any) -> torch.Tensor:
            return torch.as_tensor(next(noise))

        with (
            mock.patch.object(torch.Tensor, "normal_", normal_),
            mock.patch("torch.distributions.normal._standard_normal", standard_normal),
        ):
            self.model.train(1, ROWS)


class FlaxPeer:
    """SBX's SAC; its temperature has the actor's learning rate."""

    def __init__(self, model: Any):
        self.model = model
        random = np.random.default_rng(2)
        policy = model.policy
        moved = jax.tree.map(
            lambda leaf: leaf + 0.1 * random.standard_normal(leaf.shape, np.float32), policy.qf_state.target_params
        )
        policy.qf_state = policy.qf_state.replace(target_params=moved)

    def weights(self, when: str) -> Arrays:
        actor, critic = self.model.policy.actor_state, self.model.policy.qf_state
        return (
            named(f"{when}.actor", joined(layers_of_flax(actor.params)))
            | named(f"{when}.critic", layers_of_flax(critic.params))
            | named(f"{when}.target_critic", layers_of_flax(critic.target_params))
            | {f"{when}.log_alpha": np.array(self.model.ent_coef_state.params["log_ent_coef"])}
        )

    def moments(self) -> Arrays:
        found = {}
        actor, critic = self.model.policy.actor_state, self.model.policy.qf_state
        for name, state, join in (("actor", actor, joined), ("critic", critic, list)):
            adam = state.opt_state.inner_state[0]
            found |= named(f"end.{name}_mu", join(layers_of_flax(adam.mu)))
            found |= named(f"end.{name}_nu", join(layers_of_flax(adam.nu)))
        return found

    def hyper(self) -> dict[str, float]:
        rates = {"actor_lr": ACTOR_LR, "critic_lr": CRITIC_LR, "tau": TAU, "alpha_lr": ACTOR_LR}
        return rates | {"target_entropy": self.model.target_entropy}

    def update(self, noise: Iterator[np.ndarray]) -> None:
        def normal(key: Any, shape: Any = (), dtype: Any = None, **others: Any) -> Any:
            assert shape == (ACTION, ROWS)  # SBX's distribution draws the dimensions of an action first
            return jax.numpy.asarray(next(noise)).T

        with jax.disable_jit(), mock.patch("jax.random.normal", normal):
            self.model.train(1, ROWS)


def record(name: str, peer: TorchPeer | FlaxPeer, draws: tuple[str, ...]) -> None:
    """`draws` names the normal numbers of one update in the order in which the peer asks for them."""
    random = np.random.default_rng(1)
    batches, losses = Minibatches(random), Losses()
    peer.model.replay_buffer = batches
    peer.model.set_logger(losses)
    found = peer.weights("start")
    for update in range(UPDATES):
        noise = {draw: batches.normal(ROWS, ACTION) for draw in draws}
        given = iter(noise.values())
        peer.update(given)
        assert next(given, None) is None, "the peer did not ask for all of the noise"
        found |= {f"{update}.{draw}": value for draw, value in noise.items()}
        found |= {f"{update}.{key}": value.squeeze() for key, value in batches.given[-1].items()}
        found |= {f"{update}.{key}": value for key, value in losses.updates[-1].items()}
        found |= peer.weights(str(update))
    found |= peer.moments()
    found |= {f"hyper.{key}": np.asarray(value, np.float64) for key, value in peer.hyper().items()}
    np.savez_compressed(DATA / f"{name}.npz", allow_pickle=False, **found)
    print(name, len(found), "arrays", (DATA / f"{name}.npz").stat().st_size, "bytes")


def main() -> None:
    def peer(kind: Any, **settings: Any) -> Any:
        return kind("MlpPolicy", Nothing(), tau=TAU, seed=0, policy_kwargs={"net_arch": list(HIDDEN)}, **settings)

    next_only, both = ("next_noise",), ("noise", "next_noise")
    record("sb3_td3", TorchPeer(peer(sb3.TD3)), next_only)
    record("sb3_ddpg", TorchPeer(peer(sb3.DDPG)), next_only)
    record("sb3_sac", TorchPeer(peer(sb3.SAC)), both)
    record("sb3_sac_fixed", TorchPeer(peer(sb3.SAC, ent_coef=ALPHA)), both)
    sbx_sac = peer(sbx.SAC, learning_rate=ACTOR_LR, qf_learning_rate=CRITIC_LR, ent_coef="auto")
    record("sbx_sac", FlaxPeer(sbx_sac), both[::-1])


if __name__ == "__main__":
    main()
