"""Backbones: CTR models that compute logits, one file for each, and the parts they share."""
