"""Edits of the user's own script that remedies propose."""
