"""Builders: each makes one kind of table from the records, as a definition says."""
