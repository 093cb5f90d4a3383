"""Pure functions from a session to what it means."""
