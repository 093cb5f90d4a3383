"""The machine during a run, sampled once a second: cores, memory, GPUs and processes."""

from __future__ import annotations

from headrace.doctor.machine.host import Rates
from headrace.doctor.machine.sampler import MachineSampler
