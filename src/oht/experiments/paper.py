"""Table 1 of the paper, as printed: task -> method label -> (mean, standard deviation). Data, no code.

Table 2, the low and high scores, is part of `oht.envs.tasks`.
"""

from collections.abc import Mapping

STEPS = 10_000_000  # env steps of each run; said with Figure 2, Table 1 names none

_LABELS = ("oht-nstep", "oht-lr", "cem-rl", "td3", "sac")  # there: ES + n-step, ES + alpha, ES + TD3, TD3, SAC


def _row(*scores: tuple[float, float]) -> Mapping[str, tuple[float, float]]:
    return dict(zip(_LABELS, scores, strict=True))


TABLE1: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "dm/walker-run": _row((757, 7), (633, 45), (653, 59), (274, 200), (23, 1)),
    "dm/walker-walk": _row((881, 107), (969, 3), (966, 5), (793, 241), (87, 83)),  # "969 + 3" there, a slip for ±
    "dm/walker-stand": _row((981, 3), (985, 3), (984, 3), (487, 354), (440, 87)),
    "dm/cheetah-run": _row((825, 44), (856, 25), (822, 13), (643, 166), (3, 1)),
    "gym/ant": _row((2273, 1107), (3526, 1162), (2289, 181), (3968, 801), (2645, 1462)),
    "gym/half-cheetah": _row((10758, 397), (9764, 583), (10358, 709), (10100, 963), (11451, 406)),
    "robo/ant": _row((3041, 137), (2586, 159), (1935, 477), (2656, 33), (974, 136)),
    "robo/half-cheetah": _row((836, 188), (780, 119), (824, 54), (1713, 582), (681, 134)),
    "bullet/ant": _row((3145, 235), (2555, 280), (2101, 412), (1962, 1322), (808, 29)),
    "bullet/half-cheetah": _row((2796, 204), (2209, 78), (2135, 195), (2676, 57), (914, 251)),
}
