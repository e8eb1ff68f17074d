"""Recipes: the TOML file, its grid of jobs, the identity and the typed settings of each job, and
the events that a worker reports while it does one.
"""
