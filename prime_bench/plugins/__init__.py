"""Plug-ins around an untouched backbone, and what attaches them."""
