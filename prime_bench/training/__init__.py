"""Training by FuxiCTR's protocol: batches, loss with L2, clipping, Adam, validation, early
stopping, and scores of the test split once, at the end.
"""
