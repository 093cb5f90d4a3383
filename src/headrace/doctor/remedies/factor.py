"""How much of a stage's time is left with another implementation of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.quantities import counted, percent
from headrace.doctor.session.model import Calibration

BESIDE, MOST_BESIDE = 1.15, 1.35
"""By which what is timed alone takes longer beside others, usually and at the most: code that is the faster one waits
for memory the more often, and shares that with the other workers."""


@dataclass(frozen=True)
class Factor:
    """Shares of the present time: at the least, usually, at the most."""

    least: float
    usual: float
    most: float
    is_measured: bool
    basis: str
    """What it rests on, in a sentence."""


def factor(
    calibrations: Sequence[Calibration],
    code: str,
    unit: str,
    *,
    assumed: tuple[float, float],
    present_us: float | None = None,
) -> Factor:
    """As it was timed on the run's own files; where it was not, anything from one to the other of `assumed`.

    `present_us` is what the run measured of one unit, for what was not timed once more."""
    found = next((one for one in calibrations if (one.remedy, one.unit) == (code, unit)), None)
    shares = [] if found is None else _shares(found, present_us)
    if found is None or not shares:
        return untimed(*assumed)
    least, most = _spread(shares)
    alone = median(shares)
    basis = f"Timed on {counted(len(shares), found.unit)} in the run's own files: {percent(alone)} of the time."
    return Factor(least, min(BESIDE * alone, 1.0), min(MOST_BESIDE * most, 1.0), True, basis)


def over(usual: Prediction | None, least: Prediction | None, most: Prediction | None) -> Prediction | None:
    """The usual one, with an interval from what the least would give to what the most would."""
    if usual is None or least is None or most is None:
        return None
    return replace(usual, low_us=min(usual.low_us, least.low_us), high_us=max(usual.high_us, most.high_us))


def untimed(least: float, most: float) -> Factor:
    """Anything from one to the other."""
    basis = f"It was not timed on the run's own files: assumed is {percent(least)} to {percent(most)} of the time."
    return Factor(least, (least + most) / 2, most, False, basis)


def _shares(found: Calibration, present_us: float | None) -> list[float]:
    present = found.present_us or [present_us or 0.0] * len(found.other_us)
    return [min(other / now, 1.0) for other, now in zip(found.other_us, present, strict=False) if now > 0]


def _spread(shares: Sequence[float]) -> tuple[float, float]:
    """From the first to the last decile; of one file, what it took."""
    if len(shares) < 2:
        return shares[0], shares[0]
    deciles = quantiles(shares, n=10, method="inclusive")
    return deciles[0], deciles[-1]
