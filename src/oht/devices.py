"""Who trains where: agents on the cores of a CPU, or on one or several accelerators."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from oht.types import Array


class Group(NamedTuple):
    """Agents that train together, and where; no device: where they are."""

    members: np.ndarray
    device: Any = None  # a jax.Device

    def moved(self, tree: Any) -> Any:
        """These arrays on the group's device."""
        return tree if self.device is None else jax.device_put(tree, self.device)

    def copy(self, tree: Any) -> Any:
        """The copies that the group's device has of arrays that are `everywhere`."""
        return tree if self.device is None else jax.tree.map(self._copy, tree)

    def _copy(self, leaf: Array) -> Array:
        return next(shard.data for shard in leaf.addressable_shards if shard.device == self.device)


def separate() -> bool:
    """Whether every agent trains in a program of its own: on CPUs, where its weights then stay in a core's cache."""
    return jax.default_backend() == "cpu"


def several() -> bool:
    """Whether the population is divided among accelerators."""
    return not separate() and jax.local_device_count() > 1


def groups(updates: np.ndarray) -> list[Group]:
    """Those that train together.

    On CPUs every agent trains alone, the one with most gradient steps first, so that the last ones to finish are short.
    On several accelerators there is a group for each, with about the same number of gradient steps.
    """
    longest_first = np.argsort(-updates, kind="stable")[: np.count_nonzero(updates)]
    if separate():
        return [Group(np.array([member])) for member in longest_first]
    if not several():
        return [Group(np.sort(longest_first))] if longest_first.size else []
    divided: list[list[int]] = [[] for _ in jax.local_devices()]
    for member in longest_first.tolist():
        min(divided, key=lambda members: updates[members].sum()).append(member)
    return [Group(np.sort(own), device) for own, device in zip(divided, jax.local_devices(), strict=True) if own]


def everywhere(tree: Any) -> Any:
    """Arrays with a copy on each of several accelerators; those that have one already are left as they are."""
    if not several():
        return tree
    mesh = Mesh(np.array(jax.local_devices()), "devices")
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def first_copy(tree: Any) -> Any:
    """The copies that the first device has of arrays that are `everywhere`."""
    return Group(np.empty(0), jax.local_devices()[0]).copy(tree) if several() else tree


def together(parts: Any) -> Any:
    """Arrays of several devices on the first one, where the population is kept."""
    return jax.device_put(parts, jax.local_devices()[0]) if several() else parts
