"""Result of `headrace tune`: the line to paste and notes, as JSON and for a terminal."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from ..causes import DISTURBING, Case
from ..edits import WantedEdit
from ..quantities import counted, duration, number
from ..report import TerminalPage, TerminalRow, times
from ..simulate import Prediction
from .candidates import EVEN, Arguments, MeasuredArguments, corrected

SCHEMA = 1
TRAINING_ARGUMENTS = "TrainingArguments"
"""The class in which users of transformers' Trainer set the arguments of its loaders."""
MOST_LABEL = 44
OUT_OF_TIME, OUT_OF_RUNS, INTERRUPTED, NOTHING_LEFT = "time", "runs", "interrupted", "nothing to gain"
"""Why there was no further run."""
_ENDINGS = {
    OUT_OF_TIME: "No further one fitted into --max-seconds, and another may gain: give it more.",
    OUT_OF_RUNS: "No further one was asked for, and another may gain: --runs allows more.",
    INTERRUPTED: "Interrupted: another may gain.",
}


@dataclass(frozen=True)
class Paste:
    """The line to paste, and where it belongs."""

    line: str
    where: str
    """`train.py:42`, or in words where no call is certain to have made the loader."""
    diff: str
    """The change of the user's file; empty where it is not certain, or nothing is to be changed."""


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """Everything that was measured, predicted and proposed."""

    command: Sequence[str]
    present: Arguments
    choice: MeasuredArguments
    """The run whose arguments are proposed: the baseline where the script is best left as it is."""
    runs: Sequence[MeasuredArguments]
    """The baseline first."""
    predictions: Mapping[Arguments, Prediction]
    ended: str
    """Why there was no further run: `time`, `runs`, `interrupted` or `nothing to gain`."""
    paste: Paste
    notes: Sequence[str]
    """Notes on what does not pay, what was left out, and to what else this applies."""
    files: Sequence[str] = ()
    """Notes on files that the command changed."""
    seconds: float

    @property
    def is_kept(self) -> bool:
        """Return whether nothing is to be changed."""
        return self.choice.arguments == self.present

    @property
    def speedup(self) -> float:
        """Return the baseline's step divided by the proposed one's."""
        return self.runs[0].mean_us / self.choice.mean_us if self.runs[0].steps and self.choice.steps else 1.0

    def document(self) -> dict[str, Any]:
        """Return the JSON document; times are microseconds."""
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
            "runs": [one.document() for one in self.runs],
            "grid": [{**asdict(one), "predicted": asdict(made)} for one, made in self.predictions.items()],
        }


def paste(case: Case, choice: Arguments, present: Arguments) -> Paste:
    """Return the line that sets the chosen arguments, for the call that made the loader of the baseline."""
    keywords, call, name, diff = keywords_of(choice, present), case.script.call, "DataLoader", ""
    where = f"the DataLoader that {case.facts.get('file')}:{case.facts.get('line')} iterates"
    if call is not None:
        where = f"{call.source.path}:{call.call.lineno}"
        edit = case.edit(WantedEdit(keywords)) if choice != present else None
        diff = "" if edit is None else edit.diff
    else:
        for source in reversed(case.script.sources):
            calls = [one for one, made in source.calls if made.rpartition(".")[2].endswith(TRAINING_ARGUMENTS)]
            if len(calls) == 1:
                name, where = TRAINING_ARGUMENTS, f"{source.path}:{calls[0].lineno}"
    prefix = "dataloader_" if name == TRAINING_ARGUMENTS else ""
    texts = ", ".join(f"{prefix}{key}={text}" for key, text in keywords.items())
    return Paste(f"{name}(..., {texts})", where, diff)


def keywords_of(choice: Arguments, present: Arguments) -> dict[str, str]:
    """Return Python expressions of the arguments that differ from DataLoader's defaults or from the script's."""
    keywords = {"num_workers": str(choice.num_workers)}
    if choice.num_workers or present.num_workers:
        keywords["prefetch_factor"] = str(choice.prefetch_factor)
    for name in ("pin_memory", "persistent_workers"):
        if getattr(choice, name) or getattr(present, name):
            keywords[name] = str(getattr(choice, name))
    return keywords


def not_paying(
    choice: Arguments, runs: Sequence[MeasuredArguments], predictions: Mapping[Arguments, Prediction]
) -> Iterator[str]:
    """Say what more of each argument would give: as measured, else as predicted and corrected by the runs."""
    known = {one: (prediction.step_us, "predicted") for one, prediction in corrected(predictions, runs).items()}
    known |= {one.arguments: (one.mean_us, "measured") for one in runs if one.steps}
    for title, name in (
        (f"more workers than {choice.num_workers}", "num_workers"),
        (f"a longer queue than prefetch_factor={choice.prefetch_factor}", "prefetch_factor"),
        ("pin_memory", "pin_memory"),
        ("persistent_workers", "persistent_workers"),
    ):
        # Those that have more of it and are otherwise alike. Without workers there is no queue.
        others = {"num_workers", "prefetch_factor", "pin_memory", "persistent_workers"} - {name}
        if name == "num_workers" and not choice.num_workers:
            others = {"pin_memory"}
        more = [one for one in known if (getattr(one, name) or 0) > (getattr(choice, name) or 0)]
        alike = [one for one in more if all(getattr(one, other) == getattr(choice, other) for other in others)]
        best = min(alike, key=lambda one: known[one][0], default=None)
        if best is None:
            continue
        step_us, how = known[best]
        change = step_us / known[choice][0] - 1
        if abs(change) <= EVEN:
            yield f"{title}: no faster ({best}: within {100 * EVEN:.0f} % of it, {how})"
        elif change < 0:
            but = "which is within its noise" if how == "measured" else "which no run has shown"
            yield f"{title}: {-100 * change:.0f} % faster ({best}, {how}), {but}"
        else:
            yield f"{title}: {100 * change:.0f} % slower ({best}, {how})"


def show(result: TuneResult, console: Console) -> None:
    """Print the verdict and the line to paste, then what was tried and what does not pay."""
    page = TerminalPage(console.width, ascii_only=console.options.ascii_only)
    page.sentence(_verdict(result), style="bold")
    if not result.is_kept:
        page.copyable(result.paste.line, lead=f"{_shown(result.paste.where)}  ")
    page.line(f"{shlex.join(result.command)}", indent=0, style="dim")
    page.heading("Tried", "a step, and what it lies between in 95 of 100 cases")
    page.entries([_row(result, one) for one in result.runs], most_label=MOST_LABEL)
    page.sentence(_counts(result), lead="  ", style="dim")
    for title, texts in (("What does not pay, or was left alone", result.notes), ("Files of yours", result.files)):
        if texts:
            page.heading(title)
            for text in texts:
                page.sentence(text, lead="  • ")
    if result.paste.diff and not result.is_kept:
        page.heading("The change")
        for line in result.paste.diff.splitlines():
            page.quote(line)
    page.show(console)


def _verdict(result: TuneResult) -> str:
    if result.is_kept or not (result.runs[0].steps and result.choice.steps):
        return f"Keep what you have: {result.present}. No other that was tried gains more than {100 * EVEN:.0f} %."
    steps = f"a step takes {duration(result.choice.mean_us)} in place of {duration(result.runs[0].mean_us)}"
    return f"{times(result.speedup)}: {result.choice.arguments} in place of {result.present}; {steps}."


def _row(result: TuneResult, one: MeasuredArguments) -> TerminalRow:
    prediction = result.predictions.get(one.arguments)
    is_first = one is result.runs[0]
    predicted = "baseline" if is_first or prediction is None else f"predicted {duration(prediction.step_us)}"
    measured = f"measured {duration(one.mean_us)}" if one.steps else "not measured"
    if one.interval is None:
        remark = {"different samples": "other samples than before: never taken"}.get(one.why, one.why)
        last = [line for line in one.detail.splitlines() if line.strip()][-1:]
        remark = ": ".join([remark, *last])
    else:
        others = one.others_cores or 0.0
        beside = f"; other programs kept {number(others)} cores busy" if others >= DISTURBING else ""
        remark = f"{duration(one.interval[1])} to {duration(one.interval[2])}{beside}"
    taken = "taken" if one is result.choice else ""
    return TerminalRow(str(one.arguments), (predicted, measured, taken), remark=remark)


def _counts(result: TuneResult) -> str:
    untried = len(result.predictions) - len({one.arguments for one in result.runs})
    runs = f"{counted(len(result.runs), 'run')} in {duration(result.seconds * 1e6)}"
    return f"{runs}; {counted(untried, 'further setting')} judged by prediction alone. {_ENDINGS.get(result.ended, '')}"


def _shown(where: str) -> str:
    """Name files below the current folder by their path from there."""
    path, _, line = where.rpartition(":")
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return where if relative.startswith("..") else f"{relative}:{line}"
