"""Typed numbers of a report: pairs, statistics, and claims. No text is made here."""
