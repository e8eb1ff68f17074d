"""Plug-ins around a backbone, and the model that combines both."""
