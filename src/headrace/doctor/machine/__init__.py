"""Samples the machine beside the run: cores, memory, disks, GPUs."""

from headrace.doctor.machine.sampler import Sampler

__all__ = ["Sampler"]
