"""The machine during a run, sampled once a second: cores, memory, disks, GPUs and processes; and a survey after it."""

from __future__ import annotations

from headrace.doctor.machine.host import SHM, Cores, Rates
from headrace.doctor.machine.sampler import MachineSampler
from headrace.doctor.machine.survey import surveyed
