"""A report as text, a module a format. All print the digits that the cells already have."""
