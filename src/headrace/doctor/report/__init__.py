"""Renders a session and its diagnosis for people and for other tools."""
