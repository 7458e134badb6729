"""DDPG (Lillicrap et al. 2015) with the numbers of Spinning Up."""

from collections.abc import Sequence

from oht.agents.networks import HIDDEN
from oht.agents.td3 import td3
from oht.types import Algorithm, Spec


def ddpg(spec: Spec, *, hidden: Sequence[int] = HIDDEN) -> Algorithm:
    """TD3 without what it added: one critic, no smoothing of the target action, no delay of the actor."""
    return td3(spec, hidden=hidden, policy_delay=1, twins=1, smooth=False)
