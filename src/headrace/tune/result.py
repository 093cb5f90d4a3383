"""All of a tuning, and its JSON document: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.tune.candidates import Measured
from headrace.doctor.tune.result import Paste
from headrace.tune.arguments import Arguments

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was looked at, run and found."""

    command: Sequence[str]
    present: Arguments
    choice: Measured
    """The run whose arguments are proposed: the first one where the script is best left as it is."""
    runs: Sequence[Measured]
    """The first is the script as it is."""
    predictions: Mapping[Arguments, Prediction]
    ended: str
    """Why there was no further run: `time`, `runs`, `interrupted` or `nothing to gain`."""
    paste: Paste
    notes: Sequence[str]
    """What does not pay, what was left out, and to what else this applies."""
    files: Sequence[str] = ()
    """What became of files that the command changed."""
    seconds: float

    @property
    def is_kept(self) -> bool:
        """Whether nothing is to be changed."""
        return self.choice.arguments == self.present

    @property
    def speedup(self) -> float:
        """Of a step as it was."""
        before, after = self.runs[0].interval, self.choice.interval
        return 1.0 if before is None or after is None else before[0] / after[0]

    def document(self) -> dict[str, Any]:
        """As JSON takes it; times in microseconds."""
        return {
            "schema": SCHEMA,
            "command": list(self.command),
            "outcome": "keep" if self.is_kept else "change",
            "present": asdict(self.present),
            "choice": asdict(self.choice.arguments),
            "speedup": self.speedup,
            "paste": asdict(self.paste),
            "ended": self.ended,
            "notes": list(self.notes),
            "files": list(self.files),
            "seconds": self.seconds,
            "runs": [_run(one) for one in self.runs],
            "grid": [{**asdict(one), "predicted": asdict(made)} for one, made in self.predictions.items()],
        }


def _run(one: Measured) -> dict[str, Any]:
    mean, low, high = one.interval or (None, None, None)
    return {
        "arguments": asdict(one.arguments),
        "why": one.why,
        "detail": one.detail,
        "steps": len(one.steps),
        "step_us": mean,
        "low_us": low,
        "high_us": high,
        "others_cores": one.others_cores,
    }
