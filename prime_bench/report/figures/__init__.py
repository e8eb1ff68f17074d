"""Figures of a report: small values in, a matplotlib Figure out. Nothing else draws."""
