"""Our updates equal those of Stable-Baselines3 and SBX (recorded by record_peer_updates.py) to float32 rounding.

From the same weights and minibatches, with the same normal numbers, over four consecutive updates.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oht.agents import ALGORITHMS
from oht.population import zeros
from oht.types import Algorithm, Batch, Hyper, Spec

UPDATES = 4
NETWORKS = ("actor", "critic", "target_actor", "target_critic")
DRAWS = {"td3": ("next_noise",), "ddpg": (), "sac": ("next_noise", "noise")}  # of one step, in our order
CASES = [
    ("sb3_td3", "td3", {}),
    ("sb3_ddpg", "ddpg", {}),
    ("sb3_sac", "sac", {}),
    ("sb3_sac_fixed", "sac", {"alpha": 0.2}),
    ("sbx_sac", "sac", {}),
]


class Recording:
    def __init__(self, name: str):
        with np.load(Path(__file__).parent / "data" / f"{name}.npz") as file:
            self.arrays = dict(file)

    def hyper(self, algorithm: Algorithm) -> dict[str, jax.Array]:
        """The algorithm's defaults, with the peer's value where it has one."""
        return {name: jnp.float32(self.arrays.get(f"hyper.{name}", value)) for name, value in algorithm.hyper.items()}

    def spec(self) -> Spec:
        return Spec(self.arrays["0.obs"].shape[-1], self.arrays["0.action"].shape[-1])

    def hidden(self) -> tuple[int, ...]:
        return tuple(len(self.arrays[f"start.actor.{layer}.bias"]) for layer in range(2))

    def like(self, params: Any, prefix: str) -> Any:
        """The recorded network as a tree of the same form as `params`."""

        def recorded(path: tuple, leaf: Any) -> np.ndarray:
            layer, name = path[-2].key.removeprefix("Linear_"), path[-1].key
            array = self.arrays[f"{prefix}.{layer}.{name}"]
            assert array.shape == leaf.shape
            return array

        return jax.tree_util.tree_map_with_path(recorded, params)

    def stacked(self, name: str, updates: range) -> jax.Array:
        return jnp.concatenate([self.arrays[f"{update}.{name}"] for update in updates])

    def batch(self, updates: range) -> Batch:
        obs, action, reward, discount, next_obs, done = (
            self.stacked(name, updates) for name in ("obs", "action", "reward", "discount", "next_obs", "done")
        )
        return Batch(obs, action, reward, (1.0 - done) * discount, next_obs)

    def state(self, like: Any, when: str) -> Any:
        """The recorded weights in a state of ours; the moments stay."""
        parts = {part: self.like(getattr(like, part), f"{when}.{part}") for part in NETWORKS if hasattr(like, part)}
        if getattr(like, "log_alpha", None) is not None:
            parts["log_alpha"] = self.arrays[f"{when}.log_alpha"]
        return like._replace(**parts)


def updater(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch):
    """Our compiled update, with given numbers in place of those that it would draw."""

    def update(state: Any, batch: Batch, hyper: Hyper, noise: list[np.ndarray]):
        given = iter(noise)
        monkeypatch.setattr(jax.random, "normal", lambda key, shape: next(given).reshape(shape))
        result = algorithm.update(jax.random.key(0), state, batch, hyper)
        assert next(given, None) is None, "not all of the recorded noise was used"
        return result

    return jax.jit(update)


def assert_close(ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), ours, theirs)


@pytest.mark.parametrize(("recording", "name", "options"), CASES, ids=[case[0] for case in CASES])
def test_updates_equal_the_peers(recording: str, name: str, options: dict, monkeypatch: pytest.MonkeyPatch):
    peer = Recording(recording)
    algorithm = ALGORITHMS[name](peer.spec(), hidden=peer.hidden(), **options)
    hyper = peer.hyper(algorithm)
    state = peer.state(zeros(jax.eval_shape(algorithm.init, jax.random.key(0))), "start")
    update = updater(algorithm, monkeypatch)

    for first in range(0, UPDATES, algorithm.batches):
        steps = range(first, first + algorithm.batches)
        noise = [np.concatenate([peer.arrays[f"{step}.{draw}"] for step in steps]) for draw in DRAWS[name]]
        state, metrics = update(state, peer.batch(steps), hyper, noise)

        last = steps[-1]
        assert_close(state, peer.state(state, str(last)), rtol=1e-5, atol=1e-6)
        for loss in ("critic_loss", "actor_loss"):
            assert_close(metrics[loss], peer.arrays[f"{last}.{loss}"], rtol=1e-5, atol=1e-6)
        if name == "sac":
            assert_close(metrics["alpha"], peer.arrays[f"{last}.ent_coef"], rtol=1e-6, atol=0.0)

    for network in ("actor", "critic"):
        moments = getattr(state, f"{network}_moments")
        assert moments.count == UPDATES // (algorithm.batches if network == "actor" else 1)
        assert_close(moments.mu, peer.like(moments.mu, f"end.{network}_mu"), rtol=1e-5, atol=1e-6)
        # SBX rounds Adam's 0.999 to float32 before it takes 1 - 0.999, which is 1.3e-5 off.
        assert_close(moments.nu, peer.like(moments.nu, f"end.{network}_nu"), rtol=2e-5, atol=1e-9)


def test_the_comparison_would_see_a_small_mistake(monkeypatch: pytest.MonkeyPatch):
    """A learning rate that is off by one percent is far outside the tolerance."""
    peer = Recording("sb3_ddpg")
    algorithm = ALGORITHMS["ddpg"](peer.spec(), hidden=peer.hidden())
    state = peer.state(zeros(jax.eval_shape(algorithm.init, jax.random.key(0))), "start")
    hyper = peer.hyper(algorithm)
    wrong = hyper | {"critic_lr": 1.01 * hyper["critic_lr"]}
    state, _ = updater(algorithm, monkeypatch)(state, peer.batch(range(1)), wrong, [])
    off = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), state.critic, peer.state(state, "0").critic)
    assert max(jax.tree.leaves(off)) > 1e-5
