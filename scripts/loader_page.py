"""Write the table of the Loader's arguments into docs/loader.md, from the class's docstring and signature.

python scripts/loader_page.py          # rewrite it
python scripts/loader_page.py --check  # say whether it differs, with status 1
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace import Loader

PAGE = Path(__file__).parents[1] / "docs" / "loader.md"
BEGIN, END = "<!-- generated: arguments -->\n", "<!-- end -->"
ENTRY = re.compile(r"^((?:`\w+`(?:, )?)+) +(.*(?:\n {10,}.*)*)", re.MULTILINE)

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
    """Return the names of the docstring's entries, joined by a comma, and their texts."""
    (block,) = (part for part in (inspect.getdoc(Loader) or "").split("\n\n") if part.startswith("`view`"))
    return {names.replace("`", ""): " ".join(text.split()) for names, text in ENTRY.findall(block)}


def table() -> Iterator[str]:
    """Yield one row for each entry of the docstring, with the defaults of the signature."""
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


def written(text: str) -> str:
    """Return the page with its table as it is to be."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "".join(table()) + END + rest.partition(END)[2]


def main() -> int:
    text = PAGE.read_text()
    if written(text) == text:
        return 0
    print(PAGE)
    if "--check" not in sys.argv:
        PAGE.write_text(written(text))
    return int("--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
