"""An experiment as a TOML file: its schema, its grid, and the identity of each job."""
