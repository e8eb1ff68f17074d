"""Records become tables and figures. Reads records only; needs no torch."""
