"""Write the generated parts of the doctor's pages: what declares a fact is the one place that describes it.

python scripts/doctor_pages.py          # rewrite them
python scripts/doctor_pages.py --check  # say which differ, with status 1
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from headrace.doctor.causes import all_causes
from headrace.doctor.faults.fault_kinds import KINDS as FAULTS
from headrace.doctor.session.evidence import KINDS
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import MARKS, SPANS, WINDOWS

PAGES = Path(__file__).parents[1] / "docs" / "doctor"
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def records() -> Iterator[str]:
    """Yield one line for each kind of record: its kind, its fields, and its first sentence."""
    yield "| record | meaning |\n|---|---|\n"
    for name, kind in KINDS.items():
        fields = ", ".join([f'"{name}"', *(field.rstrip("_") for field in kind.__struct_fields__)])
        yield f"| `[{fields}]` | {_sentence(kind)} |\n"


def session() -> Iterator[str]:
    """Yield one line for each struct of the session, in the order in which they are reached."""
    yield "| part | fields | meaning |\n|---|---|---|\n"
    parts: dict[type, str] = {Session: "the document"}
    for struct in (queue := [Session]):
        yield f"| {parts[struct]} | {', '.join(struct.__struct_fields__)} | {_sentence(struct)} |\n"
        for field, hint in get_type_hints(struct).items():
            for one in _structs(hint):
                if one not in parts:
                    queue.append(one)
                    parts[one] = f"`{field}`"


def _sentence(struct: type) -> str:
    return " ".join((struct.__doc__ or "").split("\n\n")[0].split())


def _structs(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for inner in get_args(annotation):
        yield from _structs(inner)


def findings() -> Iterator[str]:
    """Yield the table of the findings."""
    return _table("finding", {code: when for cause in all_causes() for code, when in cause.findings.items()})


def _table(head: str, rows: dict[str, str]) -> Iterator[str]:
    yield f"| {head} | meaning |\n|---|---|\n"
    yield from (f"| `{key}` | {meaning} |\n" for key, meaning in rows.items())


def remedies() -> Iterator[str]:
    """Yield the table of the remedies."""
    yield "| code | remedy | effort | key in `changes` | its value |\n|---|---|---|---|---|\n"
    for kind in (one for cause in all_causes() for one in cause.remedies):
        key = f"`{kind.key}`" if kind.key else ""
        yield f"| `{kind.code}` | {kind.title} | {kind.effort} | {key} | {kind.value} |\n"


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
