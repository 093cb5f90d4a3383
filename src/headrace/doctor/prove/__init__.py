"""Trials: the same run again with changes, measured against the baseline. Remedies or settings are the candidates."""

from __future__ import annotations

from .baseline import DIGESTS, FEWEST_STEPS, STEPS
from .prover import Prover
from .remedies import remedy_attempts
from .settings import EVEN, Arguments, SettingSearch, TunedLoader, arguments, chosen, corrected
