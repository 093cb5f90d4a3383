"""Tries remedies: runs the command again with each of them injected, and measures what came of it."""
