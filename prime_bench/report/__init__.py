"""Records become tables. Reads records only; needs no torch."""
