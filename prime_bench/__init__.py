"""prime-bench: paired comparison of plug-ins for click-through-rate models, PRIME first."""

__version__ = "0.1.0"
