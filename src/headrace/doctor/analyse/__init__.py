"""Pure functions from a session to what it means."""

from .analysis import diagnose

__all__ = ["diagnose"]
