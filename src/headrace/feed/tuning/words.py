"""Why a setting is what it is, in words."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.feed.tuning.judging import LOSS
from headrace.feed.tuning.moves import Move
from headrace.feed.tuning.observation import Observation
from headrace.feed.tuning.setting import KNOBS, Bounds, Knob, Setting


@dataclass
class Reasons:
    """What was found out about the values on either side of each knob's."""

    _below: dict[Knob, str] = field(default_factory=dict)
    _above: dict[Knob, str] = field(default_factory=dict)

    def kept(self, move: Move, was: int, before: Observation, now: Observation) -> None:
        """`was`: the knob's value before the move."""
        knob = move.knob
        if move.up:
            self._above.pop(knob, None)
            self._below[knob] = f"{was} left the consumer waiting {before.wait_share:.0%}"
        else:
            self._below.pop(knob, None)
            self._above[knob] = f"{was} {_compared(before.step_s / now.step_s - 1)}"

    def went_back(self, move: Move, before: Observation, now: Observation) -> None:
        longer = now.step_s / before.step_s - 1
        if move.up:
            self._above[move.knob] = f"{move.value} {_compared(longer)}"
        elif longer > LOSS:
            self._below[move.knob] = f"{move.value} {_compared(longer)}"
        else:
            self._below[move.knob] = f"{move.value} could not keep up"

    def lacked_memory(self, seen: Observation) -> None:
        assert seen.available_bytes is not None
        self._below.pop("prefetch", None)
        self._above["prefetch"] = (
            f"more batches of {seen.batch_bytes / 1e6:,.0f} MB are too much for {seen.available_bytes / 1e9:,.1f} GB "
            "of memory"
        )

    def refused_threads(self) -> None:
        self._above["threads"] = "the system refused more"

    def of(self, setting: Setting, bounds: Bounds) -> dict[str, str]:
        """For each knob that is tuned, or would be if there were any choice."""
        told = (knob for knob in KNOBS if not bounds.is_given(knob) or knob in bounds.left_out)
        return {knob: self._of(knob, setting, bounds) for knob in told}

    def _of(self, knob: Knob, setting: Setting, bounds: Bounds) -> str:
        # Each is looked up once: whoever asks may be another thread than the one that tunes.
        below, above = self._below.get(knob), self._above.get(knob)
        found = [text for text in (below, above) if text is not None]
        if above is None and setting.of(knob) == bounds.of(knob)[1]:
            found.append("there are no more cores" if knob == "threads" else "no more is tried")
        return "; ".join(found) or "as it began"


def _compared(longer: float) -> str:
    """What another value did, by how much longer it made a step."""
    return f"made a step {longer:.0%} longer" if longer > LOSS else "were no faster"
