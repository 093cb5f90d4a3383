"""Analyse."""
