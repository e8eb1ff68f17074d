"""Builders: each makes one kind of table from the evidence, as a definition says."""
