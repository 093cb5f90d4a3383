"""Autotuning of threads and prefetch while a loader runs."""
