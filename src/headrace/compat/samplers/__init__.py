"""Samplers for torch's DataLoader that can be resumed in mid-epoch."""
