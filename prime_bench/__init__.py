"""prime-bench: paired comparison of plug-ins for click-through-rate models, PRIME first among them."""

__version__ = "0.1.0"
