"""Causes of data stalls, one per file, with their detection, wording and remedies."""

from __future__ import annotations

from .case import Case, case_of
from .findings import diagnose
from .loader import is_lost, is_unsure
from .prescription import prescribe
from .processes import LAUNCHERS, failed_process, hanging
from .proposals import EFFORTS
from .recommended import Recommended, gaining, recommended, slowed
from .remedies import effort
from .remedy import (
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
from .transfers import COPY_LEFT, pinned
from .verdict import MOST_WORDS
from .workers import bytes_a_worker
