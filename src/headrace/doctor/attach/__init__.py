"""Run a command with the probe in every Python process that it starts, and leave the user's files as they were."""
