"""Proofs: the same run again with a remedy, measured beside the baseline."""
