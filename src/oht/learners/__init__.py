"""Learners of methods that need another replay or another way to learn than `oht.population.Learner`."""
