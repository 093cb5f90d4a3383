"""Brings the probe into every Python process that a command starts."""
