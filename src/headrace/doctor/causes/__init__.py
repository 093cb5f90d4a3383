"""Causes of data stalls, one per file, with their detection, wording and remedies."""

from __future__ import annotations

from headrace.doctor.causes.case import Case, case_of
from headrace.doctor.causes.findings import diagnose
from headrace.doctor.causes.loader import is_lost, is_unsure
from headrace.doctor.causes.prescription import prescribe
from headrace.doctor.causes.processes import LAUNCHERS, failed_process, hanging
from headrace.doctor.causes.proposals import EFFORTS
from headrace.doctor.causes.recommended import Recommended, gaining, recommended, slowed
from headrace.doctor.causes.remedies import effort
from headrace.doctor.causes.remedy import (
    DISTURBING,
    LEAST_GAIN,
    LEAST_STEPS,
    Edit,
    LowerBounds,
    Prescription,
    ProofOutcome,
    Remedy,
    interval,
    is_gain,
    is_valid,
    outcomes,
)
from headrace.doctor.causes.transfers import COPY_LEFT, pinned
from headrace.doctor.causes.verdict import MOST_WORDS
from headrace.doctor.causes.workers import bytes_a_worker
