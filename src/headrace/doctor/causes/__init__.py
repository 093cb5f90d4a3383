"""Pure functions from a session to what it means."""

from headrace.doctor.analyse.analysis import diagnose

__all__ = ["diagnose"]
