"""The command line: one module for each command; torch and polars are imported inside them."""
