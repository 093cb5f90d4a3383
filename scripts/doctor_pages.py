"""Write the generated parts of the doctor's pages: what declares a fact is the one place that describes it.

python scripts/doctor_pages.py          # rewrite them
python scripts/doctor_pages.py --check  # say which differ, with status 1
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from headrace.doctor.causes import all_causes
from headrace.doctor.faults.fault_kinds import KINDS as FAULTS
from headrace.doctor.session.declaring import KINDS, RecordKind
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import MARKS, SPANS, WINDOWS

PAGES = Path(__file__).parents[1] / "docs" / "doctor"
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PROCESSES = {
    "every": "Every process",
    "trainer": "A process that trains",
    "maker": "A process that produces batches (a worker, or the trainer itself without workers)",
}


def records() -> Iterator[str]:
    """Yield the tables of all kinds of record."""
    for process, title in PROCESSES.items():
        yield f"### {title}\n\n| record | meaning |\n|---|---|\n"
        shown: set[type] = set()
        for kind in KINDS.values():
            if kind.process == process:
                yield _record(kind, is_new=kind.made not in shown)
                shown.add(kind.made)
        yield "\n"


def _record(kind: RecordKind, *, is_new: bool) -> str:
    names = [one.name.rstrip("_") for one in kind.fields]
    line = ", ".join([f'"{kind.name}"', *names])
    told = [f"{name}: {one.meaning}." for name, one in zip(names, kind.fields, strict=True)] if is_new else []
    return f"| `[{line}]` | {' '.join([kind.meaning, *told])} |\n"


def session() -> Iterator[str]:
    """Yield a table for each class of the session, in the order in which they are reached."""
    queue: list[tuple[str, type]] = [("The document", Session)]
    seen: set[type] = set()
    while queue:
        name, made = queue.pop(0)
        if made in seen:
            continue
        seen.add(made)
        yield f"### {name}\n\n{(made.__doc__ or '').strip().splitlines()[0]}"
        kinds = [f"`{kind.name}`" for kind in KINDS.values() if kind.made is made]
        yield f" Fields of the [record](#evidence) {' or '.join(kinds)}." if kinds else ""
        hints = get_type_hints(made)
        told = {one.name: one.metadata["meaning"] for one in fields(made) if one.metadata["is_derived"] or not kinds}
        yield "\n\n| field | meaning |\n|---|---|\n" if told else "\n"
        yield from (f"| `{field}` | {meaning} |\n" for field, meaning in told.items())
        yield "\n"
        queue += [(f"`{field}`", inner) for field, hint in hints.items() for inner in _classes(hint)]


def _classes(annotation: Any) -> Iterator[type]:
    if is_dataclass(annotation) and isinstance(annotation, type):
        yield annotation
    for inner in get_args(annotation):
        yield from _classes(inner)


def findings() -> Iterator[str]:
    """Yield the table of the findings."""
    return _table("finding", {code: when for cause in all_causes() for code, when in cause.findings.items()})


def _table(head: str, rows: dict[str, str]) -> Iterator[str]:
    yield f"| {head} | meaning |\n|---|---|\n"
    yield from (f"| `{key}` | {meaning} |\n" for key, meaning in rows.items())


def remedies() -> Iterator[str]:
    """Yield the table of the remedies."""
    yield "| code | what to do | effort | key in `changes` | its value |\n|---|---|---|---|---|\n"
    for kind in (one for cause in all_causes() for one in cause.remedies):
        key = f"`{kind.key}`" if kind.key else ""
        yield f"| `{kind.code}` | {kind.what} | {kind.effort} | {key} | {kind.value} |\n"


def faults() -> Iterator[str]:
    """Yield the table of the faults of data."""
    yield "| code | proved by | what to change |\n|---|---|---|\n"
    yield from (f"| `{kind.code}` | {kind.proof} | {kind.mend} |\n" for kind in FAULTS.values())


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "records": records,
    "session": session,
    "remedies": remedies,
    "faults": faults,
    "findings": findings,
    "spans": lambda: _table("span", {kind: f"{name}: {meaning}" for kind, (name, meaning) in SPANS.items()}),
    "marks": lambda: _table("mark", MARKS),
    "windows": lambda: _table("window", WINDOWS),
}


def written(text: str) -> str:
    """Return a page with its generated parts as they are to be."""
    return PART.sub(lambda found: found[1] + "".join(PARTS[found[2]]()) + found[3], text)


def main() -> int:
    differing = [page for page in sorted(PAGES.glob("*.md")) if written(page.read_text()) != page.read_text()]
    for page in differing:
        if "--check" not in sys.argv:
            page.write_text(written(page.read_text()))
        print(page)
    return int("--check" in sys.argv and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
