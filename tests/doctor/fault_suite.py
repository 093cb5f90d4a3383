"""The scripts of cases/ with planted faults, and what a user would call the doctor's top causes of each."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from observed_runs import CASES, DEADLINE_S, headrace, python, torchrun
from report_pages import said

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Diagnosis, Finding
from headrace.doctor.session.model import Session
from headrace.doctor.session.storage import decode_session

HEAVY = 0.05
"""Share of a step: a healthy script has no finding that concerns as much."""
ELSEWHERE = ("cpu-stolen",)
"""Findings about what else runs on the machine of the tests, which no script plants."""
TOP = 3
"""Findings among which both of two planted faults must be."""


@dataclass(frozen=True)
class Case:
    """A function of a script, with the arguments of its decorator `planted`."""

    name: str
    script: str
    expected: tuple[str, ...] = ()
    ranks: int = 1
    steps: int = 80

    def command(self) -> list[str]:
        return python(self.script, self.name) if self.ranks == 1 else torchrun(self.ranks, self.script, self.name)


@dataclass(frozen=True)
class Examined:
    """What the doctor says of a case."""

    case: Case
    session: Session
    document: dict[str, Any] = field(repr=False)
    out: str = field(repr=False)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return diagnose(self.session)

    def misses(self) -> list[str]:
        """What it should have said and did not, or the other way round; empty where it is right."""
        if not self.case.expected:
            return self._unhealthy()
        places = self._top_one() if len(self.case.expected) == 1 else self._top_ones()
        return [phrase for phrase in self.case.expected if phrase not in places]

    def _unhealthy(self) -> list[str]:
        verdict = [] if self.diagnosis.verdict.code == "not-input-bound" else [said(self.diagnosis)]
        own = [finding for finding in self.diagnosis.findings if finding.code not in ELSEWHERE]
        return verdict + [finding.text for finding in own if finding.weight >= HEAVY]

    def _top_one(self) -> str:
        """The first cause in the verdict, with what the verdict says beside it, and the heaviest finding."""
        first, *others = re.split(r"(?<=[a-z)]), \d", said(self.diagnosis), maxsplit=1)
        beside = others[0].partition(". ")[2] if others else ""
        return "\n".join([first, beside, *_texts(self.diagnosis.findings[:1])])

    def _top_ones(self) -> str:
        return "\n".join([said(self.diagnosis), *_texts(self.diagnosis.findings[:TOP])])

    @property
    def others_cores(self) -> float:
        """Share of the cores that programs besides the command kept busy: the planted rates hold on a quiet machine."""
        columns, facts = self.session.machines[0].columns, self.session.machines[0].facts
        known = [busy for busy in columns.get("cpu_cores_other", []) if busy is not None]
        return fmean(known) / facts["cores"] if known else 0.0

    def summary(self) -> str:
        """For a person to read."""
        findings = [f"  {one.weight * 100:5.1f} %  {one.code}: {one.text}" for one in self.diagnosis.findings[:5]]
        misses = self.misses()
        return "\n".join(
            [f"\n{self.case.name}: {f'MISSED {misses}' if misses else 'right'}", said(self.diagnosis), *findings]
        )


def cases() -> list[Case]:
    """All of them, read and not run."""
    return [case for path in sorted(CASES.glob("planted_*.py")) for case in _cases(path)]


def examine(
    case: Case, folder: Path, *options: str, data: Path, deadline_s: float = DEADLINE_S, replay_steps: int | None = None
) -> Examined:
    """Runs it under the doctor until that ends it, in windows of a user's length where `replay_steps` gives none."""
    path = folder / "session.json"
    call = ("doctor", "--json", str(path), "--steps", str(case.steps), *options, "--", *case.command())
    planted = {"PLANTED_DATA": str(data)}
    ran = headrace(*call, environment=planted, deadline_s=deadline_s, replay_steps=replay_steps)
    assert path.exists(), f"no session was written; exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    content = path.read_bytes()
    return Examined(case, decode_session(content), json.loads(content), ran.stdout)


def _cases(path: Path) -> Iterator[Case]:
    for function in ast.parse(path.read_text()).body:
        for call in function.decorator_list if isinstance(function, ast.FunctionDef) else []:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "planted":
                options = {str(option.arg): ast.literal_eval(option.value) for option in call.keywords}
                yield Case(function.name, path.name, tuple(map(ast.literal_eval, call.args)), **options)


def _texts(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings]
