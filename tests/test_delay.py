import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oht.envs.delay import pay_late


@pytest.mark.parametrize(
    ("delay", "paid"),
    [
        (0, [1, 2, 3, 4, 5, 6, 7]),
        (1, [1, 2, 3, 4, 5, 6, 7]),
        (3, [0, 0, 6, 0, 0, 15, 7]),  # the remainder, one step, is paid at the end
        (5, [0, 0, 0, 0, 15, 0, 13]),
        (7, [0, 0, 0, 0, 0, 0, 28]),
        (9, [0, 0, 0, 0, 0, 0, 28]),
    ],
)
def test_pays_every_dth_step_and_the_rest_at_the_end(delay: int, paid: list[float]):
    late = pay_late(np.arange(1, 8, dtype=np.float32), delay)
    assert late.tolist() == paid
    assert late.dtype == np.float32


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=40), st.integers(0, 50))
def test_returns_are_conserved(rewards: list[int], delay: int):
    assert pay_late(np.array(rewards, np.float32), delay).sum() == sum(rewards)
