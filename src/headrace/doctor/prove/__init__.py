"""Remedies tried: the command runs again with each of them injected."""
