"""Samples the machine beside the run: cores, memory, disks, GPUs."""
