"""Measurements of arms, one module a kind of job: its `run` returns the findings."""
