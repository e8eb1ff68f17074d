"""Synthetic click logs: fields, planted click probability, rows, and raw files."""
