"""CTR models that compute logits and nothing else, each in a file of its own."""
