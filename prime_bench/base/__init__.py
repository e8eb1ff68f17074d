"""What every layer may use: errors, files, random streams, identity, the base of all models."""
