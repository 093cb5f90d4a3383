"""Write the generated parts of the pages, and docs/llms.txt: what declares a fact is the one place that describes it.

python scripts/generated_pages.py          # rewrite them
python scripts/generated_pages.py --check  # say which differ, with status 1
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from site_pages import llms_txt

import headrace
from headrace import Loader
from headrace.doctor.causes import all_causes
from headrace.doctor.faults.fault_kinds import KINDS as FAULTS
from headrace.doctor.session.evidence import KINDS
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import MARKS, SPANS, WINDOWS

PAGES = Path(__file__).parents[1] / "docs"
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


ENTRY = re.compile(r"^((?:`\w+`(?:, )?)+) +(.*(?:\n {10,}.*)*)", re.MULTILINE)
"""Entry of a docstring's table of arguments: the names, and the text with its indented lines."""
GUIDES = {
    "view": "#views",
    "augment": "augmentation.md",
    "augment_on": "augmentation.md#on-the-device",
    "buckets": "variable-sizes.md#buckets-and-budgets",
    "pack": "text.md#packed-texts",
    "shuffle": "sampling.md#shuffling",
    "order": "sampling.md#shuffling",
    "weights": "sampling.md",
    "balanced": "sampling.md",
    "repeats": "sampling.md#repeated-augmentation",
    "samples_per_epoch": "sampling.md",
    "threads": "tuning.md",
    "prefetch": "tuning.md",
    "on_error": "troubleshooting.md#bad-samples",
    "max_bad": "troubleshooting.md#bad-samples",
    "quarantine": "troubleshooting.md#bad-samples",
    "map": "transforms.md",
    "batch_map": "transforms.md",
    "map_workers": "transforms.md#threads-or-processes",
    "batch": "augmentation.md#mixing",
    "rank": "determinism.md#which-rank-a-loader-is",
    "decode": "#decode-on-the-gpu",
    "cache": "caching.md",
    "limits": "troubleshooting.md#bad-samples",
    "workers": "packs.md#batches-from-other-machines",
}
"""Page that describes an argument further, from docs/."""


def arguments() -> dict[str, str]:
    """Return the names of each entry of the Loader's docstring, joined by a comma, and its text."""
    (block,) = (part for part in (inspect.getdoc(Loader) or "").split("\n\n") if part.startswith("`view`"))
    return {names.replace("`", ""): " ".join(text.split()) for names, text in ENTRY.findall(block)}


def loader_arguments() -> Iterator[str]:
    """Yield one row for each entry of the Loader's docstring, with the defaults of the signature."""
    yield "| argument | default | |\n|---|---|---|\n"
    signature = inspect.signature(Loader).parameters
    for names, text in arguments().items():
        each = names.split(", ")
        guide = GUIDES.get(each[0])
        heads = [f"[`{name}`]({guide})" if guide and name == each[0] else f"`{name}`" for name in each]
        yield f"| {', '.join(heads)} | {', '.join(_default(signature[name]) for name in each)} | {text} |\n"


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is parameter.empty:
        return "required"
    return f'`"{value}"`' if isinstance(value, str) else str(value)


REFERENCE = {
    "Loader": ["headrace.loader", "headrace._core"],
    "Data": ["headrace.data"],
    "Batches": ["headrace.plan", "headrace.device"],
    "Fields": ["headrace.fields"],
    "Views": ["headrace.views"],
    "Augmentation": ["headrace.augment", "headrace.fields.translation"],
    "Drop-ins": ["headrace.dropins"],
    "Modules": ["headrace", "headrace.errors"],
}
"""Modules whose public names each section of the reference has."""


def names() -> Iterator[str]:
    """Yield a section for each part of the reference, with each public name and the first sentence of its docstring."""
    for section, modules in REFERENCE.items():
        yield f"## {section}\n| name | |\n|---|---|\n"
        for name in (name for module in modules for name, home in headrace._HOMES.items() if home == module):
            sentence = " ".join(re.split(r"(?<=\.)\s|\n\n", _docstring(name))[0].split())
            yield f"| `{name}` | {sentence} |\n"
        yield "\n"


def _docstring(name: str) -> str:
    """Return the docstring of a public name; for a native class, its stub's, and for a value, the text below it."""
    value = getattr(headrace, name)
    native = headrace._HOMES[name] == "headrace._core"
    if not native and (inspect.ismodule(value) or inspect.isclass(value) or inspect.isfunction(value)):
        return inspect.getdoc(value) or ""
    source = Path(headrace.__file__).with_name("_core.pyi") if native else inspect.getsourcefile(type(value))
    assert source is not None
    (text,) = re.findall(
        rf'^(?:class )?{name}\b[^\n]*\n *"""(.*?)"""', Path(source).read_text(), re.DOTALL | re.MULTILINE
    )
    return inspect.cleandoc(text)


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "arguments": loader_arguments,
    "names": names,
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


def outdated() -> dict[Path, str]:
    """Return the files that are out of date, with their text as it is to be."""
    texts = {page: written(page.read_text()) for page in sorted(PAGES.rglob("*.md"))}
    texts[PAGES / "llms.txt"] = llms_txt()
    return {page: text for page, text in texts.items() if not page.exists() or page.read_text() != text}


def main() -> int:
    differing = outdated()
    for page, text in differing.items():
        if "--check" not in sys.argv:
            page.write_text(text)
        print(page)
    return int("--check" in sys.argv and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
