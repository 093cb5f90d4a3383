"""Compat."""
