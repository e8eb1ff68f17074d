"""Bridges to other code bases."""
