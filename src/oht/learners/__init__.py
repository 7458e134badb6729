"""Learners that methods bring: other replays, other ways to learn. The usual one is `oht.population.Learner`."""
