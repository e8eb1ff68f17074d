"""PRIME on models of FuxiCTR, and weights exchanged with it."""
