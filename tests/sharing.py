"""Runs with the same algorithm share its programs: most of the time of a small run goes into tracing and compiling."""

from collections.abc import Callable
from typing import Any

from oht.config import Config
from oht.population import Learner
from oht.types import Algorithm, Spec


def share_programs(setattr: Callable[[Any, str, Any], None] = setattr) -> None:
    """From now on equal settings give the same algorithm, and learners of the same algorithm are equal to JAX."""
    build, known = Config.algorithm, {}

    def algorithm(self: Config, spec: Spec) -> Algorithm:
        adapted = (self.tuner, self.tune) if self.method.adapt else ()  # other methods leave the algorithm as it is
        key = (self.factory, self.method.adapt, spec, repr((self.options, adapted, self.run.normalise)))
        if key not in known:
            known[key] = build(self, spec)
        return known[key]

    def identity(self: Learner) -> tuple:
        return type(self), self.algorithm.act, self.algorithm.update, self.batch_size

    setattr(Config, "algorithm", algorithm)
    setattr(Learner, "__hash__", lambda self: hash(identity(self)))
    setattr(Learner, "__eq__", lambda self, other: identity(self) == identity(other))
