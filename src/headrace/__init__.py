"""Headrace keeps GPUs fed in PyTorch training."""
