"""The synthetic click log: fields, planted click probability, rows, and raw files."""
