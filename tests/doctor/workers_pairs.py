"""Runs of the same training with 0, 1, 2 and 4 workers, so that what one of them promises of another can be checked.

`recorded_pairs/SHAPE.json.xz` holds, of one shape of cases/contended.py, a session for each number of workers, without
what no prediction reads, and the mean step of each run that was made with as many.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from made_work import recorded_in
from observed_runs import CASES, headrace, python

from headrace.doctor.session.model import Session
from headrace.doctor.session.storage import decode_session, encode_session
from headrace.doctor.simulate import Prediction, RecordedRun, predicted
from headrace.doctor.simulate.prediction import WIDTH, WORKERS_ERROR

FOLDER = Path(__file__).parent / "recorded_pairs"
WORKERS = (0, 1, 2, 4)
KINDS = NONE_TO_SOME, SOME_TO_NONE, MORE, FEWER = ("none to some", "some to none", "more", "fewer")
COLUMNS = ("cpu_cores_busy", "cpu_cores_other", "cpu_cores_command")
"""Readings of the machine that predictions use."""


@dataclass(frozen=True)
class Setting:
    """One shape with so many workers."""

    workers: int
    session: Session
    observed_us: list[float]
    """Mean step of each run."""

    @property
    def recorded(self) -> RecordedRun:
        return recorded_in(self.session)


@dataclass(frozen=True)
class Pair:
    """What the run with `before` workers promises of `after`, and what was measured."""

    shape: str
    before: int
    after: int
    kind: str
    """One of `KINDS`."""
    observed_us: float
    prediction: Prediction
    proved_us: float

    @property
    def error(self) -> float:
        """Return the logarithm of the predicted step by the proved one."""
        return math.log(self.prediction.step_us / self.proved_us)

    @property
    def width(self) -> float:
        """Return the logarithm of the interval's upper end by the predicted step."""
        return math.log(self.prediction.high_us / self.prediction.step_us)

    @property
    def is_covered(self) -> bool:
        return self.prediction.low_us <= self.proved_us <= self.prediction.high_us

    @property
    def is_promise(self) -> bool:
        """Return whether the whole interval is a gain."""
        return self.prediction.high_us < self.observed_us

    @property
    def needed(self) -> float:
        """Return the least `WORKERS_ERROR` with which the interval would hold the proved step."""
        others = (self.width / WIDTH) ** 2 - WORKERS_ERROR**2
        return math.sqrt(max((self.error / WIDTH) ** 2 - others, 0.0))

    def row(self) -> str:
        known = self.prediction
        steps = " | ".join(f"{us / 1000:.1f}" for us in (self.observed_us, known.step_us, self.proved_us))
        within = f"{known.low_us / 1000:.1f} to {known.high_us / 1000:.1f}{'' if self.is_covered else ' (not)'}"
        gains = f"{known.speedup:.2f} × | {self.observed_us / self.proved_us:.2f} ×"
        return f"| {self.shape} | {self.before} → {self.after} | {steps} | {within} | {gains} |"


def shapes() -> list[str]:
    """Return the shapes that were recorded."""
    return sorted(path.name.removesuffix(".json.xz") for path in FOLDER.glob("*.json.xz"))


def settings(shape: str) -> list[Setting]:
    document = json.loads(lzma.decompress((FOLDER / f"{shape}.json.xz").read_bytes()))
    return [
        Setting(run["workers"], decode_session(json.dumps(run["session"]).encode()), run["steps"]) for run in document
    ]


def keep(shape: str, known: Sequence[Setting]) -> None:
    """Write what `settings` reads."""
    sessions = [unplaced(json.loads(encode_session(slim(one.session)))) for one in known]
    pairs = zip(known, sessions, strict=True)
    document = [{"workers": one.workers, "steps": one.observed_us, "session": its} for one, its in pairs]
    FOLDER.mkdir(exist_ok=True)
    content = json.dumps(document, separators=(",", ":")).encode()
    (FOLDER / f"{shape}.json.xz").write_bytes(lzma.compress(content, preset=9))


def pairs(shape: str, known: Sequence[Setting]) -> Iterator[Pair]:
    """Predict each setting from each other."""
    found = {one.workers: one.recorded for one in known}
    proved = {one.workers: fmean(one.observed_us) for one in known}
    for before, after in permutations(found, 2):
        now = found[before]
        prediction = predicted(now, replace(now.setup, workers=after))
        yield Pair(shape, before, after, kind(before, after), now.observed_us, prediction, proved[after])


def kind(before: int, after: int) -> str:
    """Name how the number of workers changes: one of `KINDS`."""
    if not before or not after:
        return NONE_TO_SOME if after else SOME_TO_NONE
    return MORE if after > before else FEWER


def coverage(found: Sequence[Pair]) -> float:
    return fmean(pair.is_covered for pair in found)


def coverage_elsewhere(found: Sequence[Pair], share: float) -> float:
    """Return, of one kind, the share covered where the error of each shape's intervals is what covers that share of the
    other shapes' pairs."""
    covered = []
    for shape in {pair.shape for pair in found}:
        chosen = float(np.quantile([pair.needed for pair in found if pair.shape != shape], share))
        covered += [pair.needed <= chosen for pair in found if pair.shape == shape]
    return fmean(covered)


def slim(session: Session) -> Session:
    """Leave out what no prediction reads."""
    session.controls = []
    session.notes, session.proofs = [], []
    for machine in session.machines:
        machine.columns = {name: machine.columns[name] for name in COLUMNS}
    for maker in session.makers:
        maker.lines = []
    return session


def unplaced(document: Any) -> Any:
    """Return the document without the folders of the machine that wrote it: files by their names alone."""
    if isinstance(document, dict):
        return {key: unplaced(value) for key, value in document.items() if key != "boot_id"}
    if isinstance(document, list):
        return [unplaced(value) for value in document]
    return document.rpartition("/")[2] if isinstance(document, str) and document.startswith("/") else document


def measured(shape: str, workers: int, folder: Path, data: Path) -> Session:
    """Return one run under the doctor, with as many threads of torch as a user has."""
    document = folder / f"{shape}-{workers}.json"
    command = python("contended.py", shape, "--workers", workers, "--data", data)
    call, environment = ("--steps", "40", "--", *command), {"PYTHONPATH": str(CASES), "OMP_NUM_THREADS": ""}
    ran = headrace("doctor", "--json", str(document), *call, environment=environment)
    assert document.exists(), f"no session was written; exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return decode_session(document.read_bytes())


def said(found: Sequence[Pair]) -> dict[str, Any]:
    """Return the figures of one kind for a table."""
    errors = sorted(abs(pair.error) for pair in found)
    return {"pairs": len(found), "median": errors[len(errors) // 2], "covered": coverage(found)}
