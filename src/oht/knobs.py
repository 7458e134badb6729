"""Hyper-parameters by name."""

from typing import NamedTuple


class Knob(NamedTuple):
    """What users are told of a hyper-parameter, and the values it can take at all."""

    help: str
    low: float
    high: float


KNOBS = {
    "n_step": Knob("rewards summed before the target bootstraps", 1, 1000),
    "gamma": Knob("discount of future rewards", 0.0, 1.0),
    "tau": Knob("share of the online weights that enters the targets at each step (1 - polyak)", 0.0, 1.0),
    "actor_lr": Knob("learning rate of the policy", 0.0, 1e6),
    "critic_lr": Knob("learning rate of the Q-functions", 0.0, 1e6),
    "exploration_noise": Knob("standard deviation of the noise on played actions", 0.0, 10.0),
    "target_noise": Knob("standard deviation of the noise on the target's action", 0.0, 10.0),
    "noise_clip": Knob("largest noise on the target's action", 0.0, 10.0),
    "alpha": Knob("fixed entropy temperature", 0.0, 100.0),
    "alpha_lr": Knob("learning rate of the automatic temperature", 0.0, 1e6),
    "target_entropy": Knob("entropy that the automatic temperature steers to", -1000.0, 1000.0),
}
