"""Samples the machine beside the run: cores, memory, disks, GPUs."""

from headrace.doctor.machine.sampler import MachineSampler

__all__ = ["MachineSampler"]
