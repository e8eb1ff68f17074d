"""FuxiCTR's protocol: batches, loss, L2, clip, Adam, validation, early stop, test once."""
