"""Encode raw values as the arrays of a prepared table, in bounded memory."""
