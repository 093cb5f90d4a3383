"""Hands off the user's work: after a measured run the working directory is as it was before."""
