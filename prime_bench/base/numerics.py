"""The version of everything that can change a number. `docs/numerics.md` has a line for each."""

NUMERICS = 2
