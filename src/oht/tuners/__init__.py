"""Tuners: one short file for each method; NumPy only. A tuner never sees a weight: data in, data out."""
