"""How long a peer's TD3 takes for one env step with its gradient step, on HalfCheetah-v5. Prints one JSON object.

    python benchmarks/peers.py sbx --train-freq 50 --steps 3000

Runs in the peers' own Python (stable-baselines3, sbx-rl, gymnasium[mujoco]); end_to_end.py calls it.
"""
# pyright: reportMissingImports=false

import argparse
import json
import time
from importlib import metadata
from typing import Any

import numpy as np

PACKAGES = {"sb3": "stable-baselines3", "sbx": "sbx-rl"}


def td3(peer: str, train_freq: int, hidden: list[int], batch: int, start_steps: int, seed: int) -> Any:
    from stable_baselines3.common.noise import NormalActionNoise

    if peer == "sbx":
        from sbx import TD3

        rates: dict[str, float] = {"learning_rate": 1e-3, "qf_learning_rate": 1e-3}
    else:
        from stable_baselines3 import TD3

        rates = {"learning_rate": 1e-3}
    return TD3(
        "MlpPolicy",
        "HalfCheetah-v5",
        batch_size=batch,
        train_freq=train_freq,
        gradient_steps=train_freq,
        learning_starts=start_steps,
        action_noise=NormalActionNoise(np.zeros(6), np.full(6, 0.1)),
        policy_kwargs={"net_arch": hidden},
        device="cpu",
        seed=seed,
        **rates,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PACKAGES)
    parser.add_argument("--train-freq", type=int, default=1, help="env steps, and then as many gradient steps")
    parser.add_argument("--hidden", type=int, nargs="+", default=[300, 300])
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--start-steps", type=int, default=1000, help="random steps without learning, not timed")
    parser.add_argument("--warm-up", type=int, default=500, help="steps with learning (and compilation), not timed")
    parser.add_argument("--steps", type=int, default=3000, help="steps that are timed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    model = td3(args.peer, args.train_freq, args.hidden, args.batch, args.start_steps, args.seed)
    model.learn(args.start_steps + args.warm_up)
    before, updates = time.perf_counter(), model._n_updates
    model.learn(args.steps, reset_num_timesteps=False)
    seconds, updates = time.perf_counter() - before, model._n_updates - updates
    result = {
        "peer": args.peer,
        "version": metadata.version(PACKAGES[args.peer]),
        "train_freq": args.train_freq,
        "updates_per_step": updates / args.steps,
        "ms_per_step": 1000 * seconds / args.steps,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
