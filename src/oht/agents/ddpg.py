"""DDPG (Lillicrap et al. 2015) with the numbers of Spinning Up."""

from collections.abc import Sequence

from oht.agents.td3 import td3
from oht.hyper import OPTIONS
from oht.types import Algorithm, Spec


def ddpg(
    spec: Spec,
    *,
    hidden: Sequence[int] = OPTIONS["hidden"].default,
    activation: str = OPTIONS["activation"].default,
    layer_norm: bool = OPTIONS["layer_norm"].default,
) -> Algorithm:
    """TD3 without its additions: one critic, no smoothing of the target action, no delay of the actor."""
    body = {"hidden": hidden, "activation": activation, "layer_norm": layer_norm}
    return td3(spec, **body, policy_delay=1, twins=1, smooth=False)
