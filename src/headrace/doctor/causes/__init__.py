"""Causes of data stalls, one a file, with their detection, wording and remedies."""

from __future__ import annotations

from headrace.doctor.causes.case import LEAST_STEPS
from headrace.doctor.causes.cause import all_causes
from headrace.doctor.causes.diagnosis import MOST_WORDS, diagnose
from headrace.doctor.causes.loader import is_unsure
from headrace.doctor.causes.prescription import (
    Recommended,
    effort,
    gaining,
    prescribe,
    recommended,
    slowed,
)
from headrace.doctor.causes.processes import LAUNCHERS, failed_process
from headrace.doctor.causes.remedy import EFFORTS, Edit, Prescription, ProofOutcome, Remedy, control_means_us, outcomes
from headrace.doctor.causes.stalled import hanging_batches
