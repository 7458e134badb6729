"""Delayed rewards: the sum of d rewards is paid at every d-th step."""

import numpy as np


def pay_late(reward: np.ndarray, delay: int) -> np.ndarray:
    """The rewards (T,) of a whole episode, paid late.

    r'_t = sum_{k = t-d+1..t} r_k where d divides t (t = 1, 2, ...) and 0 elsewhere; what is left at the end is paid at
    the last step, so that the return stays the same. A delay of 0 or 1 changes nothing.
    """
    if delay <= 1 or len(reward) == 0:
        return reward
    starts = np.arange(0, len(reward), delay)
    paid = np.zeros_like(reward)
    paid[np.minimum(starts + delay, len(reward)) - 1] = np.add.reduceat(reward, starts, dtype=np.float64)
    return paid
