"""The error for a user's mistake: a sentence that says what is wrong and what would be right."""

from collections.abc import Iterable
from difflib import get_close_matches

# Names of Stable-Baselines3, and of people who are used to it, with what they are called here.
_OTHER_NAMES = {
    "total_timesteps": "the env steps of a run are called steps here.",
    "timesteps": "the env steps of a run are called steps here.",
    "learning_rate": "actor and critics have their own learning rates here: actor_lr and critic_lr.",
    "lr": "actor and critics have their own learning rates here: actor_lr and critic_lr.",
    "buffer_size": "the size of the replay buffer is called replay_size here.",
    "learning_starts": "the env steps before learning are called start_steps here.",
    "gradient_steps": "the gradient steps for each env step are called replay_ratio here.",
    "train_freq": "agents learn between whole episodes here; replay_ratio sets the gradient steps for each env step.",
    "env_kwargs": "each argument of the env is a flag of its own, as in --env-arg gravity=9.8.",
    "device": "JAX chooses the device: a GPU if there is one and oht's extra cuda is installed, otherwise the CPU.",
    "policy_kwargs": "networks are set by hidden, activation and layer_norm here, as in hidden=256,256.",
    "net_arch": "the units of the hidden layers are called hidden here, as in hidden=256,256.",
    "ent_coef": "the entropy temperature of sac is called alpha here; it is learned unless it is given.",
}


class UserError(Exception):
    """Shown as one sentence without a traceback; the command line then ends with exit code 2."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """An unknown name, with what another library's name is here, the nearest known one, or all known ones."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}."
    if kind in ("setting", "flag", "hyper-parameter"):
        hint = _OTHER_NAMES.get(name.strip("-").replace("-", "_"), hint)
    return UserError(f"unknown {kind} {name!r}; {hint}")
