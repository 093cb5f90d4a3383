"""Two sessions of one training side by side: what changed beyond noise, and in which part of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from headrace.doctor.measure import (
    BOUND,
    LEAST_GAIN,
    ORDER,
    WAIT,
    Join,
    TrainerView,
    batch_stages,
    host_of,
    interval,
    main_view_of,
    step_parts,
    whole_fact,
)
from headrace.doctor.quantities import ABSENT, duration, number, percent
from headrace.doctor.report import TerminalPage, TerminalRow, versions
from headrace.doctor.session import saved_session
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import LOADER_FACTS
from headrace.errors import SessionError

STEP = "step"
DISTURBING = 0.3
"""Change in the cores used by other programs that alone makes steps longer or shorter."""
LEAST_STEPS = 4
"""Number of steps below which there are no two blocks to estimate a spread."""


@dataclass(frozen=True)
class ComparedTime:
    """Mean of one figure in both runs, and the 95 % confidence interval of the difference, after minus before."""

    name: str
    before_us: float | None
    """Mean in the first run; None if it has no such part."""
    after_us: float | None
    low_us: float
    high_us: float

    @property
    def change_us(self) -> float:
        return (self.after_us or 0.0) - (self.before_us or 0.0)

    @property
    def is_certain(self) -> bool:
        """True if the spread in the runs does not explain the difference, and it is at least 2 % of the time."""
        least = LEAST_GAIN * max(self.before_us or 0.0, self.after_us or 0.0)
        return not self.low_us <= 0 <= self.high_us and abs(self.change_us) >= least


@dataclass(frozen=True)
class RunComparison:
    """Changes between two runs. `verdict` comes first."""

    verdict: str
    step: ComparedTime
    parts: list[ComparedTime] = field(default_factory=list)
    """Parts of a step, largest change first."""
    stages: list[ComparedTime] = field(default_factory=list)
    """Stages of producing one sample, for the most awaited loader; largest change first."""
    settings: list[tuple[str, str, str]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Reasons why the runs may differ without any change of the program."""


def compare(before: Session, after: Session) -> RunComparison:
    """Compare two sessions by the trainer with the longest data stall. Raises SessionError if one measured no step."""
    views = [main_view_of(one) for one in (before, after)]
    for name, view in zip(("first", "second"), views, strict=True):
        if view is None or not view.training.steps:
            raise SessionError(
                f"compare: expected two sessions with measured steps, got none in the {name}; run the doctor until a "
                "few optimizer steps have been observed"
            )
    first, second = (view for view in views if view is not None)
    step = _compared(STEP, first.training.durations, second.training.durations)
    parts = _all_compared(_parts(first), _parts(second), ORDER)
    old, new = _stages(before, first), _stages(after, second)
    stages = _all_compared(old, new, {**old, **new})
    set_before, set_after = _set(before, first), _set(after, second)
    settings = [
        (name, _said(set_before.get(name)), _said(set_after.get(name)))
        for name in dict.fromkeys([*set_before, *set_after])
        if set_before.get(name) != set_after.get(name)
    ]
    doubts = list(_doubts(before, after, first, second))
    return RunComparison(_verdict(step, parts, stages), step, parts, stages, settings, doubts)


def _parts(view: TrainerView) -> dict[str, list[float]]:
    return _columns([step_parts(view.training, step) for step in view.training.steps])


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [row.get(name, 0.0) for row in rows] for name in {name for row in rows for name in row}}


def _stages(session: Session, view: TrainerView) -> dict[str, list[float]]:
    """Return the time per sample of each stage, batch by batch, for the most awaited loader."""
    if not view.batch_production:
        return {}
    number = view.batch_production[0].loader
    loader = view.loader(number)
    size = None if loader is None else whole_fact(loader.facts, "batch_size")
    join, costs = Join(session), []
    for one in view.trainer.passes:
        if one.loader == number:
            for maker, row in join.finder(view.trainer, one).batches():
                samples = maker.batches.samples[row] or size or 1
                costs.append({name: wall / samples for name, (_, wall, _) in batch_stages(maker, row).items()})
    return _columns(costs)


def _all_compared(
    before: dict[str, list[float]], after: dict[str, list[float]], names: Iterable[str]
) -> list[ComparedTime]:
    """Compare every figure of either run, largest change first."""
    known = (name for name in names if before.get(name) or after.get(name))
    found = [_compared(name, before.get(name, []), after.get(name, [])) for name in known]
    return sorted(found, key=lambda one: -abs(one.change_us))


def _compared(name: str, before: Sequence[float], after: Sequence[float]) -> ComparedTime:
    old, old_half = _mean_and_half(before)
    new, new_half = _mean_and_half(after)
    half = math.hypot(old_half, new_half)
    change = (new or 0.0) - (old or 0.0)
    return ComparedTime(name, old, new, change - half, change + half)


def _mean_and_half(values: Sequence[float]) -> tuple[float | None, float]:
    """Return the mean and the half-width of its interval; without values, the time is certainly 0."""
    if not values:
        return None, 0.0
    mean, _, high = interval(values)
    return mean, high - mean


def _set(session: Session, view: TrainerView) -> dict[str, object]:
    """Return the settings of a run: its command, loader, software and machine."""
    loader = view.loader(view.batch_production[0].loader) if view.batch_production else None
    host = host_of(session, view.trainer)
    return {
        "command": " ".join(session.outcome.command),
        **({} if loader is None else {name: loader.facts.get(name) for name in LOADER_FACTS}),
        **versions(session, view.trainer),
        "cores": None if host is None else host.cores,
        "host": view.trainer.host,
        "ranks": len({one.rank for one in session.trainers}),
    }


def _said(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return ABSENT if value is None else str(value)


def _doubts(before: Session, after: Session, first: TrainerView, second: TrainerView) -> Iterator[str]:
    """Yield what may have changed the steps besides the program."""
    hosts = [host_of(one, view.trainer) for one, view in ((before, first), (after, second))]
    others = [None if host is None else host.mean("cpu_cores_other") for host in hosts]
    if others[0] is not None and others[1] is not None and abs(others[1] - others[0]) >= DISTURBING:
        yield f"Other programs used {number(others[0])} cores before, and {number(others[1])} after."
    steps = [len(view.training.steps) for view in (first, second)]
    if min(steps) < LEAST_STEPS:
        yield f"Only {min(steps)} steps of one run were measured: its spread is not known."


def _verdict(step: ComparedTime, parts: Sequence[ComparedTime], stages: Sequence[ComparedTime]) -> str:
    """Return how the step changed, and the part responsible."""
    before, after = step.before_us or 0.0, step.after_us or 0.0
    both = f"{duration(before)} before, {duration(after)} after"
    if not step.is_certain:
        spread = max(abs(step.low_us - step.change_us), 0.0)
        within = "" if math.isinf(spread) else f": {duration(spread)} are within the spread of the steps"
        return f"No change of the step beyond noise: {both}{within}."
    ratio = max(before, after) / max(min(before, after), 1.0)
    said = f"The step became {number(ratio)} × as {'fast' if after < before else 'long'}: {both}."
    alike = [one for one in parts if one.is_certain and (one.change_us < 0) == (step.change_us < 0)]
    if alike:
        heaviest = alike[0]
        said += f" {signed(heaviest.change_us)} come from {heaviest.name}"
        stage = next((one for one in stages if one.is_certain and (one.change_us < 0) == (step.change_us < 0)), None)
        is_waiting = heaviest.name == WAIT and abs(heaviest.change_us) >= BOUND * before
        said += f", {signed(stage.change_us)} a sample from {stage.name}." if is_waiting and stage else "."
    return said


def signed(us: float) -> str:
    return f"{'-' if us < 0 else '+'}{duration(abs(us))}"


def rows(compared: Sequence[ComparedTime]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield name, before, after, change and a remark for each time of at least 0.1 % of the largest."""
    largest = max((max(one.before_us or 0.0, one.after_us or 0.0) for one in compared), default=0.0)
    for one in compared:
        if max(one.before_us or 0.0, one.after_us or 0.0) >= largest / 1000:
            share = "" if not one.before_us else f"{percent(abs(one.change_us) / one.before_us)}"
            remark = share if one.is_certain else "within noise"
            yield one.name, duration(one.before_us), duration(one.after_us), signed(one.change_us), remark


def show_compared(before: Path, after: Path) -> int:
    """Compare two saved sessions, print the result, and return the exit status. Raises SessionError for a bad one."""
    compared, console = compare(saved_session(before), saved_session(after)), Console()
    page = TerminalPage(console.width, ascii_only=console.options.ascii_only)
    page.sentence(compared.verdict, style="bold")
    for doubt in compared.doubts:
        page.sentence(doubt, lead="! ")
    for title, times in (("Step", [compared.step, *compared.parts]), ("A sample, by stage", compared.stages)):
        if times:
            page.heading(title)
            head = TerminalRow("", ("before", "after", "change"))
            page.rows([head, *(TerminalRow(label, cells, remark=remark) for label, *cells, remark in rows(times))])
    if compared.settings:
        page.heading("Set otherwise")
        for name, old, new in compared.settings:
            page.sentence(f"{old} → {new}", lead=f"  {name}: ")
    page.show(console)
    return 0
