"""Live view of a run from its growing evidence: position, data wait, workers and GPU.

A terminal shows it below the run's output. Without a terminal, it prints a line every few seconds.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headrace.doctor.probe import SETTLING_STEPS, ProbeSettings, replayed_steps
from headrace.doctor.quantities import counted, number, percent
from headrace.doctor.report.run_text import name_text
from headrace.doctor.report.terminal import heat
from headrace.doctor.report.terminal_layout import TerminalPage, TerminalRow
from headrace.doctor.session.declaring import kind_of
from headrace.doctor.session.evidence_schema import decode_record
from headrace.doctor.session.trainers import DRAIN, EARLY, LOAD, OBSERVE, REPLAY

MOST_BYTES_AT_ONCE = 4 << 20
"""Maximum bytes of one file per look. The next look reads the rest."""


@dataclass
class TailedProcess:
    """Evidence file with its texts by number and the current read offset."""

    path: Path
    names: dict[int, str] = field(default_factory=dict)
    offset: int = 0

    def new_records(self) -> Iterator[Any]:
        """Yield the records added since the last call, except `name` records, which go into `names`."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(MOST_BYTES_AT_ONCE)
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            try:
                record = decode_record(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # the momentary display may skip a record
            if kind_of(record) == "name":
                self.names[record.number] = record.text
            else:
                yield record


class EvidenceTail:
    """Reader of all evidence files in a folder, including files that appear later."""

    def __init__(self, evidence: Path) -> None:
        self._evidence = evidence
        self._processes: dict[str, TailedProcess] = {}

    def new_records(self) -> Iterator[tuple[TailedProcess, Any]]:
        """Yield new records. A missing folder or file yields none."""
        try:
            paths = sorted(self._evidence.glob("*.jsonl"))
        except OSError:
            return
        for path in paths:
            process = self._processes.setdefault(path.name, TailedProcess(path))
            try:
                yield from ((process, record) for record in process.new_records())
            except OSError:
                continue


WARM_UP, OVER = "warm-up", "over"


@dataclass(frozen=True)
class CurrentWindow:
    """Window from docs/doctor/measuring.md, or `warm-up` before the windows, or `over` after them."""

    name: str
    done: int | None = None
    """Completed steps, without settling steps after a window change; None if the window has no steps."""
    steps: int | None = None
    """Planned steps; None while unknown, or if the window has no steps."""


class WindowMeter:
    """Progress of a run through its windows.

    All ranks go through the windows together, so the rank with the newest record counts.
    """

    def __init__(self, settings: ProbeSettings) -> None:
        self._settings = settings
        self._trainers: dict[str, _TrainerProgress] = {}
        self._newest: _TrainerProgress | None = None

    def add(self, records: Iterable[tuple[TailedProcess, Any]]) -> None:
        for process, record in records:
            trainer = self._trainers.setdefault(process.path.name, _TrainerProgress(self._settings.warmup))
            trainer.take(record)
            if kind_of(record) in ("step", "window"):
                self._newest = trainer

    def current(self) -> CurrentWindow | None:
        """Return the current window; None before the first step and in a run without windows."""
        at, asked = self._newest, self._settings
        if asked.replay == 0 or at is None:
            return None
        if at.window in (REPLAY, LOAD):
            done = at.steps - at.first - SETTLING_STEPS
            most = replayed_steps(asked.replay, asked.steps, at.step_s)
            return CurrentWindow(at.window, min(max(done, 0), most), most)
        if at.window != OBSERVE:
            return CurrentWindow(at.window)
        if at.warmup is None or at.steps < at.warmup:
            return CurrentWindow(WARM_UP, at.steps, at.warmup)
        return CurrentWindow(OBSERVE, min(at.steps - at.early - at.warmup, asked.steps), asked.steps)


@dataclass
class _TrainerProgress:
    warmup: int | None
    steps: int = 0
    """Number of completed steps."""
    window: str = OBSERVE
    first: int = 0
    """Number of the window's first step."""
    early: int = 0
    """Steps replayed after the first epoch, within the observed steps."""
    step_s: float = 0.0
    """Mean observed step in seconds; 0 before the end of the observed window."""
    works_ahead: bool = False
    """True if batches are made before the trainer requests them."""

    def take(self, record: Any) -> None:
        match kind_of(record):
            case "step":
                self.steps = max(self.steps, record.number + 1)
            case "facts":
                self.warmup = record.facts.get("warmup_steps", self.warmup)
            case "loader":
                self.works_ahead |= bool(record.facts.get("num_workers") or record.facts.get("threads"))
            case "window" if record.name == EARLY:
                is_warm = self.warmup is not None and record.first >= self.warmup
                self.early = record.steps if is_warm else 0
            case "window":
                after = {OBSERVE: REPLAY, REPLAY: LOAD if self.works_ahead else DRAIN, LOAD: DRAIN}
                if record.name == OBSERVE and record.steps > self.early:
                    self.step_s = (record.end - record.start) / 1e6 / (record.steps - self.early)
                self.first, self.window = record.first + record.steps, after.get(record.name, OVER)
            case "end":
                self.window = OVER
            case "note" if record.code == "no-replay":
                self.window = OVER


WINDOW_US = 10_000_000


@dataclass(frozen=True)
class LivePace:
    """Rates over the last seconds. None means not seen yet."""

    step: int | None
    """Number of the newest step."""
    steps_per_s: float | None
    """Mean rate of one rank."""
    wait_share: float | None
    """Share of the training threads' time spent waiting for data."""
    workers: int
    """Number of processes that made a batch."""
    busy: float | None
    """Share of the workers' time spent making batches."""
    stages: list[tuple[str, float]] = field(default_factory=list)
    """`category:label` and its share of making batches, heaviest first."""


class LivePaceMeter:
    """Meter for rates and shares over the last seconds, in the session's microseconds."""

    def __init__(self, window_us: int = WINDOW_US) -> None:
        self._window_us = window_us
        self._steps: deque[tuple[int, int]] = deque()  # end, duration
        self._waits: deque[tuple[int, int]] = deque()  # end, duration
        self._batches: deque[tuple[int, int, str, list[tuple[str, int]]]] = deque()  # end, wall, maker, stages
        self._newest: int | None = None
        self._now_us = 0

    def add(self, records: Iterable[tuple[TailedProcess, Any]]) -> None:
        for process, record in records:
            match kind_of(record):
                case "step":
                    self._steps.append((record.end, record.end - record.start))
                    self._newest = max(self._newest or 0, record.number)
                    self._now_us = max(self._now_us, record.end)
                case "get":
                    self._waits.append((record.start + record.duration, record.duration))
                case "batch" if all(stage in process.names for stage, *_ in record.stages):
                    named = [(process.names[stage], wall) for stage, _, wall, _ in record.stages]
                    wall = record.fetched - record.start
                    self._batches.append((record.fetched, wall, process.path.name, named))
                    self._now_us = max(self._now_us, record.fetched)

    def pace(self) -> LivePace:
        since = self._now_us - self._window_us
        for kept in (self._steps, self._waits, self._batches):
            while kept and kept[0][0] < since:
                kept.popleft()
        steps_us = sum(duration for _, duration in self._steps)
        making_us = sum(wall for _, wall, _, _ in self._batches)
        makers = {maker for _, _, maker, _ in self._batches}
        # The window's length, or the elapsed part of it.
        first = min((end - wall for end, wall, _, _ in self._batches), default=0)
        covered_us = max(min(self._window_us, self._now_us - first), 1)
        walls: Counter[str] = Counter()
        for *_, stages in self._batches:
            for name, wall in stages:
                walls[name] += wall
        whole = walls.total()
        return LivePace(
            step=self._newest,
            steps_per_s=len(self._steps) * 1e6 / steps_us if steps_us else None,
            wait_share=min(sum(duration for _, duration in self._waits) / steps_us, 1.0) if steps_us else None,
            workers=len(makers),
            busy=min(making_us / (len(makers) * covered_us), 1.0) if makers else None,
            stages=[(name, wall / whole) for name, wall in walls.most_common()] if whole else [],
        )


STAGES = 3
_DOING = {
    WARM_UP: "warming up",
    OBSERVE: "observing",
    REPLAY: "replaying",
    LOAD: "replaying with workers running",
    DRAIN: "draining the loader",
    OVER: "ending the run",
}


def live_page(
    pace: LivePace, window: CurrentWindow | None, gpu: float | None, *, width: int, ascii_only: bool
) -> TerminalPage:
    """Return a few rows: progress, main waits, and load of workers and GPU."""
    page = TerminalPage(width, ascii_only=ascii_only)
    if pace.step is None:
        page.line("headrace doctor: no step yet", indent=0, style="dim")
        return page
    page.sentence(_position(pace, window), lead="doctor  ", lead_style="bold")
    workers = f"{counted(pace.workers, 'worker')} busy"
    shares = [("waits for data", pace.wait_share, True), (workers, pace.busy, False), ("GPU busy", gpu, False)]
    stages = [(name_text(name), share, True) for name, share in pace.stages[:STAGES]]
    for rows, indent in ((shares, 2), (stages, 4)):
        page.rows(
            [
                TerminalRow(name, (percent(share),), share, heat(share) if hot and share is not None else "cyan")
                for name, share, hot in rows
            ],
            indent=indent,
        )
    return page


def live_line(pace: LivePace, window: CurrentWindow | None, gpu: float | None, *, ascii_only: bool) -> str:
    """Return the same content as a single line, for output without a terminal."""
    stage = f", most in {name_text(pace.stages[0][0])} {percent(pace.stages[0][1])}" if pace.stages else ""
    text = (
        f"headrace doctor: {_position(pace, window)}, "
        f"waits for data {percent(pace.wait_share)}, "
        f"{counted(pace.workers, 'worker')} busy {percent(pace.busy)}{stage}, GPU busy {percent(gpu)}"
    )
    return TerminalPage(ascii_only=ascii_only).shown(text)


def _position(pace: LivePace, window: CurrentWindow | None) -> str:
    """Return text such as `step 1,204, 8.1 steps/s, replaying 14 of 40 steps`."""
    at = f"step {pace.step:,}, {number(pace.steps_per_s)} steps/s"
    if window is None:
        return at
    done = "" if window.steps is None else f" {window.done} of {counted(window.steps, 'step')}"
    return f"{at}, {_DOING[window.name]}{done}"


REFRESH_S = 0.5
LINE_EVERY_S = 10.0

GpuReader = Callable[[], float | None]
"""Function that returns the GPU's current activity as a share; None if not measured."""


class LiveView:
    """Live view that follows the evidence in its own thread while entered. `relay` prints above the view."""

    def __init__(self, settings: ProbeSettings, console: Console, *, gpu: GpuReader = lambda: None) -> None:
        self._tail = EvidenceTail(Path(settings.evidence))
        self._pace = LivePaceMeter()
        self._windows = WindowMeter(settings)
        self._console = console
        self._gpu = gpu
        self._is_over = threading.Event()
        self._live: Live | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-doctor-live", daemon=True)

    def __enter__(self) -> LiveView:
        if self.draws:
            self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    @property
    def draws(self) -> bool:
        """True if there is a terminal to draw on; otherwise the view prints lines."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def relay(self, line: str) -> None:
        """Print a line of the command's output in its original colours."""
        self._console.print(Text.from_ansi(line), soft_wrap=True, highlight=False)

    def _run(self) -> None:
        every = REFRESH_S if self._live is not None else LINE_EVERY_S
        while not self._is_over.wait(every):
            self.look()

    def look(self) -> None:
        """Read new evidence and display it. The view's own thread calls this periodically."""
        records = list(self._tail.new_records())
        self._pace.add(records)
        self._windows.add(records)
        pace, window, ascii_only = self._pace.pace(), self._windows.current(), self._console.options.ascii_only
        if self._live is not None:
            page = live_page(pace, window, self._gpu(), width=self._console.width, ascii_only=ascii_only)
            self._live.update(Group(*page.lines), refresh=True)
        elif pace.step is not None:
            line = live_line(pace, window, self._gpu(), ascii_only=ascii_only)
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)
