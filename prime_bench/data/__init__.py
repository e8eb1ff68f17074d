"""Data sets: cards, the preparation of tables from raw or synthetic logs, and prepared tables."""
