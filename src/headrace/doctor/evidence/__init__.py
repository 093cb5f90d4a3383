"""Reads what the probes wrote, and merges it into a session."""
