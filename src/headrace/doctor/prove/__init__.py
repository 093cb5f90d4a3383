"""Trials: the same run again with changes, measured against the baseline. Remedies or settings are the candidates."""

from __future__ import annotations

from headrace.doctor.prove.baseline import DIGESTS, FEWEST_STEPS, STEPS
from headrace.doctor.prove.prover import Prover
from headrace.doctor.prove.remedies import remedy_attempts
from headrace.doctor.prove.settings import EVEN, Arguments, SettingSearch, TunedLoader, arguments, chosen, corrected
