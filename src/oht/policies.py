"""A policy in one file: a NumPy forward pass that needs no JAX, no env and no run folder.

The .npz file holds the layers of the actor, the scaling of observations and the range of actions as plain arrays, and
a JSON text `facts` with the structure of the observations. Nothing is pickled.
"""

import io
import json
import math
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from oht import onnxmodel
from oht.errors import UserError
from oht.runs import refused, write_aside

FORMAT = 2  # 1 knew neither other activations than relu nor layer normalisation, and is read, too
NORM_EPSILON = 1e-6  # of the layer normalisation
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}
Layout = dict[str, Any]  # {"box": shape}, {"dict": [[key, Layout], ...]} or {"tuple": [Layout, ...]}


class CannotExport(Exception):
    """An agent whose network the NumPy forward pass cannot compute."""


class SavedPolicy:
    """A deterministic policy: observations in, actions in the env's own range out."""

    def __init__(self, layout: Layout, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any] | None = None):
        self.layout, self.arrays, self.facts = layout, dict(arrays), dict(facts or {})
        self._layers = [(arrays[f"kernel_{i}"], arrays[f"bias_{i}"]) for i in range(_number_of_layers(arrays))]
        if not self._layers or self._layers[0][0].shape[0] != width(layout):
            raise CannotExport("its network does not fit the observations")
        if self.facts.setdefault("activation", "relu") not in ACTIVATIONS:
            raise CannotExport(f"its activation {self.facts['activation']!r} is unknown")

    def __call__(self, obs: Any) -> np.ndarray:
        """The action for one observation as the env gives it, or one action per row of a batch."""
        return scaled(self.arrays["low"], self.arrays["high"], self._forward(vectors(self.layout, obs)))

    def predict(self, obs: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True):
        """As in Stable-Baselines3: (action or actions, state)."""
        if not deterministic:
            raise UserError("a policy from a file is deterministic; load the run with oht.load to act with noise.")
        return self(obs), state

    def _forward(self, x: np.ndarray) -> np.ndarray:
        """tanh of the perceptron's mean output, in [-1, 1]; a Gaussian policy has its log deviation behind the mean."""
        if "mean" in self.arrays:
            limit = self.arrays["clip"]
            x = np.clip((x - self.arrays["mean"]) / self.arrays["scale"], -limit, limit)
        for i, (kernel, bias) in enumerate(self._layers[:-1]):
            x = x @ kernel + bias
            if f"norm_scale_{i}" in self.arrays:
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(NORM_EPSILON))
                x = x * self.arrays[f"norm_scale_{i}"] + self.arrays[f"norm_bias_{i}"]
            x = ACTIVATIONS[self.facts["activation"]](x)
        kernel, bias = self._layers[-1]
        return np.tanh((x @ kernel + bias)[..., : self.arrays["low"].size])

    def save(self, path: str | Path) -> Path:
        """Write a .npz file, which `load_policy` reads, and return its path."""
        facts = {**self.facts, "format": FORMAT, "oht": metadata.version("oht"), "layout": self.layout}
        content = io.BytesIO()
        np.savez(content, facts=np.array(json.dumps(facts)), **self.arrays)  # pyright: ignore[reportArgumentType]
        return _written(Path(path), content.getvalue())

    def export(self, path: str | Path) -> Path:
        """Write an ONNX file, whose batch dimension is free, and return its path."""
        facts = {**self.facts, "oht": metadata.version("oht")}
        return _written(Path(path), onnxmodel.build(self.layout, self.arrays, facts, NORM_EPSILON))

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {self.facts[name]}" for name in ("task", "algo", "env_steps") if name in self.facts)
        return f"<SavedPolicy {facts}>"


def _written(path: Path, content: bytes) -> Path:
    with refused(path):
        write_aside(path, content)
    return path


def load_policy(path: str | Path) -> SavedPolicy:
    """Read a policy that `run.policy.save` wrote."""
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        facts = json.loads(str(arrays.pop("facts")))
        if facts["format"] not in range(1, FORMAT + 1):
            raise UserError(f"{path} has format {facts['format']}; this version of oht reads up to {FORMAT}.")
        return SavedPolicy(facts.pop("layout"), arrays, facts)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, CannotExport) as error:
        raise UserError(f"{path} is not a policy that `run.policy.save` wrote ({error}).") from None


# Observations and actions


def layout_of(space: Any) -> Layout:
    """The structure of a Gymnasium space of Boxes, Dicts and Tuples."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return {"dict": [[key, layout_of(part)] for key, part in parts.items()]}
    if parts is not None:
        return {"tuple": [layout_of(part) for part in parts]}
    return {"box": list(space.shape)}


def width(layout: Layout) -> int:
    """How many numbers an observation has."""
    if "box" in layout:
        return int(np.prod(layout["box"]))
    return sum(width(part) for _, part in _parts(layout))


def vectors(layout: Layout, obs: Any) -> np.ndarray:
    """One observation as a vector (n,), or a batch of B observations as (B, n).

    An observation is as the env gives it, or flat already; in a batch each of its arrays has a leading axis B.
    """
    if isinstance(obs, np.ndarray) and obs.ndim in (1, 2) and obs.shape[-1] == width(layout) and "box" not in layout:
        return obs.astype(np.float32)
    if "box" in layout:
        return _box(tuple(layout["box"]), np.asarray(obs, np.float32))
    try:
        parts = [vectors(part, obs[key]) for key, part in _parts(layout)]
        return np.concatenate(parts, axis=-1)
    except (KeyError, IndexError, TypeError) as error:
        raise UserError(f"the observation lacks a part of the env's own: {type(error).__name__} {error}.") from None
    except ValueError:
        raise UserError("the parts of the observation have batches of different sizes.") from None


def _box(shape: tuple[int, ...], obs: np.ndarray) -> np.ndarray:
    size = int(np.prod(shape))
    if obs.shape == shape:
        return obs.reshape(size)
    if obs.shape[1:] in (shape, (size,)) and obs.ndim:
        return obs.reshape(len(obs), size)
    if obs.size == size:
        return obs.reshape(size)
    raise UserError(f"an observation has shape {shape} ({size} numbers) or a batch axis before it, not {obs.shape}.")


def _parts(layout: Layout) -> list[Any]:
    return layout["dict"] if "dict" in layout else list(enumerate(layout["tuple"]))


def scaled(low: np.ndarray, high: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Actions in [-1, 1], (d,) or (B, d), in the range and shape of the env."""
    below, above = low.astype(np.float64), high.astype(np.float64)
    unit = action.reshape(*action.shape[:-1], *low.shape)
    return np.clip(below + (unit + 1.0) / 2 * (above - below), below, above).astype(low.dtype)


# From an agent


def actor_arrays(agent: Any, clip: float, smallest_variance: float) -> dict[str, np.ndarray]:
    """The layers of an agent's actor, and its observation statistics if it has them.

    Algorithms that wrap another one keep its state as `agent`.
    """
    arrays: dict[str, np.ndarray] = {}
    while hasattr(agent, "agent"):
        moments = getattr(agent, "moments", None)
        if moments is not None and hasattr(moments, "variance"):
            scale = np.sqrt(np.asarray(moments.variance) + np.float32(smallest_variance))
            arrays |= {"mean": np.asarray(moments.mean), "scale": scale, "clip": np.float32(clip)}  # pyright: ignore
        agent = agent.agent
    if not hasattr(agent, "actor"):
        raise CannotExport("its state has no `actor`")
    layers = _layers(agent.actor)
    linear, norms = ([layer for layer in layers if part in layer] for part in ("kernel", "scale"))
    if len(norms) not in (0, len(linear) - 1):
        raise CannotExport("some hidden layers are normalised and others not")
    for number, layer in enumerate(linear):
        arrays |= {f"{part}_{number}": np.asarray(layer[part], np.float32) for part in ("kernel", "bias")}
    for number, layer in enumerate(norms):
        arrays |= {f"norm_{part}_{number}": np.asarray(layer[part], np.float32) for part in ("scale", "bias")}
    return arrays


def _layers(params: Any) -> list[Mapping[str, Any]]:
    """The linear layers and the layer normalisations of nested parameters, in the order of their numbers."""
    if not isinstance(params, Mapping):
        raise CannotExport("its actor is not made of linear layers")
    if set(params) in ({"kernel", "bias"}, {"scale", "bias"}):
        return [params]
    names = sorted(params, key=lambda name: int(str(name).rpartition("_")[2]) if "_" in str(name) else 0)
    return [layer for name in names for layer in _layers(params[name])]


def _number_of_layers(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(name.startswith("kernel_") for name in arrays)
