"""Trials: the same run again with remedies, measured against the baseline."""

from __future__ import annotations

from headrace.doctor.prove.baseline import DIGESTS, STEPS
from headrace.doctor.prove.prover import Prover
from headrace.doctor.prove.remedies import remedy_attempts
