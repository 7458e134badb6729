"""Records numbers of CEM-RL's own evolution strategy into tests/data/cemrl.json, for test_cemrl.py to compare.

It runs the class sepCEM of ES.py in https://github.com/apourchot/CEM-RL. The stored numbers were made with a
transcript of that class alone, as it is at commit 2b557b4, not with a whole checkout. Run with the folder of ES.py:

    python tests/record_cemrl.py CEM-RL
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "cemrl.json"
POPULATIONS = (2, 5, 10)
GENERATIONS, WEIGHTS = 6, 3
SETTINGS = {"sigma_init": 0.05, "damp": 1e-2, "damp_limit": 1e-4}
BEST = np.array([0.5, -1.0, 0.1])  # of the weights


def recorded(strategy: Any, population: int) -> dict[str, Any]:
    """What each generation draws, gets and becomes; an even population is drawn in mirrored pairs."""
    np.random.seed(population)  # noqa: NPY002 (the original draws from here)
    search = strategy(WEIGHTS, pop_size=population, antithetic=population % 2 == 0, **SETTINGS)
    generations = []
    for _ in range(GENERATIONS):
        mean, drawn = search.mu.tolist(), search.ask(population)
        scores = -((drawn - BEST) ** 2).sum(axis=1)
        search.tell(drawn, scores)
        after = {"damp": float(search.damp), "new_mean": search.mu.tolist(), "new_variance": search.cov.tolist()}
        generations.append({"mean": mean, "drawn": drawn.tolist(), "scores": scores.tolist(), **after})
    return {"population": population, "generations": generations}


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    sep_cem = importlib.import_module("ES").sepCEM
    numbers = {"settings": SETTINGS, "cases": [recorded(sep_cem, population) for population in POPULATIONS]}
    DATA.write_text(json.dumps(numbers, indent=1) + "\n")
