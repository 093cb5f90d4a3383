"""Trials: the same run again with remedies, measured against the baseline."""

from __future__ import annotations

from headrace.doctor.prove.prover import Prover, remedy_attempts
from headrace.doctor.prove.trial import DIGESTS
