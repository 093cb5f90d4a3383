"""Parts and sums of datasets: `Subset`, what `random_split` chose, and `ConcatDataset`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from ..edits import ScriptSource
from .code_layout import literal
from .recipe import DataSource, KnownSample, RecipePart
from .stand_ins import LongList, StandIn, class_of
from .table_sources import cells_in

SUBSET = "torch.utils.data.dataset.Subset"
CONCATENATED = "torch.utils.data.dataset.ConcatDataset"
_WRITTEN = 16
"""Indices that are written into the module."""
_JOINED = {
    "hr.open(SOURCE)": "SOURCE",
    "hr.open(MANIFEST)": "MANIFEST",
    "hr.open(MANIFEST, root=ROOT)": "MANIFEST",
}
"""Expressions that take several files of one kind as well, and the constant that names them."""
_FILES = (".csv", ".tsv", ".jsonl", ".parquet", ".tar", ".zip", ".arrow")


def subset_sample(
    found: KnownSample, subset: Any, sources: Iterable[ScriptSource], command: Sequence[str]
) -> KnownSample:
    """Return the sample of a dataset of which a Subset takes some, by indices that are known or can be drawn again."""
    source = found.source
    is_exact = all(part.certainty == "exact" for part in source.parts if part.argument == "source")
    if not is_exact and not all(_is_sorted(cell.examples) for cell in cells_in(found.value)):
        note = (
            "it takes samples by their numbers, and the script numbers them in an order of its own, such as that of "
            "os.listdir: here these numbers are other samples, of its validation, too; name the split's files in a list"
        )
        part = RecipePart("Subset", "", "", "no", note, "source")
        return replace(found, source=replace(source, parts=(*source.parts, part)))
    indices = vars(subset).get("indices")
    drawn = _drawn(indices, source.length, seeds(sources, command)) if isinstance(indices, list | LongList) else None
    imports: tuple[str, ...] = ()
    if isinstance(indices, range) or (isinstance(indices, list) and len(indices) <= _WRITTEN):
        told, code = literal(indices), literal(indices)
    elif drawn is not None:
        seed, place = drawn
        told, imports = f"indices of random_split, seed {seed}", ("import torch",)
        order = f"torch.randperm({source.length}, generator=torch.Generator().manual_seed({seed}))"
        code = f"{order}[{place}:{place + _count(indices)}].tolist()"
    else:
        note = "the Loader opens all samples; the script takes some of them: data.select(indices) or data.split(…)"
        return _to_check(found, note)
    if source.chosen is not None:
        return _to_check(found, "it takes some of what another one has taken")
    part = RecipePart("Subset", "", f"select({told})", "exact", "", "source")
    taken = replace(
        source,
        constants={**source.constants, "INDICES": code},
        imports=(*source.imports, *imports),
        parts=(*source.parts, part),
        chosen="INDICES",
    )
    return replace(found, source=taken)


def _is_sorted(examples: Sequence[Any]) -> bool:
    """Return whether paths or names come in the order in which the Loader reads them; other values tell nothing."""
    names = [str(one) for one in examples if isinstance(one, str | PurePath)]
    return names == sorted(names)


def _to_check(found: KnownSample, note: str) -> KnownSample:
    """Return the sample of the whole dataset, with the Subset as a part to check."""
    part = RecipePart("Subset", "", "", "check", note, "source")
    return replace(found, source=replace(found.source, parts=(*found.source.parts, part)))


def _count(indices: list[Any] | LongList) -> int:
    return indices.count if isinstance(indices, LongList) else len(indices)


def _drawn(indices: list[Any] | LongList, whole: int | None, tried: Iterable[int]) -> tuple[int, int] | None:
    """Return the seed, and the place in the permutation that it gives, from which on it holds these indices."""
    count = _count(indices)
    first = indices.first if isinstance(indices, LongList) else indices
    if whole is None or not 0 < count <= whole or len(first) < 2:
        return None
    try:
        import torch
    except ImportError:  # of a doctor that was installed without it
        return None
    for seed in tried:
        order = torch.randperm(whole, generator=torch.Generator().manual_seed(seed)).tolist()
        place = order.index(first[0]) if first[0] in order else whole
        if place + count <= whole and order[place : place + len(first)] == first:
            return seed, place
    return None


def seeds(sources: Iterable[ScriptSource], command: Sequence[str]) -> list[int]:
    """Return numbers that a script may seed generators with: they stand beside the word in its code or its command."""
    found: list[int] = []
    for source in sources:
        found += [number for node in ast.walk(source.tree) for number in _seeds_of(node)]
    found += map(int, re.findall(r"seed[= ](\d{1,9})(?!\d)", " ".join(command)))
    return list(dict.fromkeys(number for number in [*found, 0] if 0 <= number < 1 << 32))[:32]


def _seeds_of(node: ast.AST) -> Iterator[int]:
    given: list[ast.expr | None] = []
    if isinstance(node, ast.Call) and "seed" in ast.unparse(node.func).rpartition(".")[2]:
        given += node.args
    elif isinstance(node, ast.Call) and any("seed" in ast.unparse(one) for one in node.args):
        given += [one.value for one in node.keywords if one.arg == "default"]  # of an argument of the script's
    elif isinstance(node, ast.Assign) and any("seed" in ast.unparse(one).lower() for one in node.targets):
        given.append(node.value)
    yield from (one.value for one in given if isinstance(one, ast.Constant) and type(one.value) is int)


def concatenated_sample(dataset: Any, found: Sequence[KnownSample | None]) -> KnownSample | None:
    """Return the sample of several datasets one behind the other, whose files `hr.open` takes together.

    Datasets that differ in what they make of a sample, or that are no files of one kind, are "no", with the reason.
    """
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    first = known[0]
    name = _JOINED.get(first.source.code)
    alike = all(_outline(one) == _outline(first) for one in known)
    paths = [one.source.constants.get(name or "", "") for one in known]
    texts = [ast.literal_eval(path) for path in paths if path]
    single = [text for text in texts if isinstance(text, str) and text.lower().endswith(_FILES)]
    label = f"ConcatDataset of {len(known)}"
    parts = tuple(part for one in known for part in one.source.parts)
    if not alike or name is None or len(single) < len(known):
        why = "make their samples in different ways" if not alike else "are no files of one kind"
        note = f"they {why}: hr.mix takes a Loader of each, in given proportions; or list all files in one manifest"
        part = RecipePart(label, "", "", "no", note, "source")
        return replace(first, source=replace(first.source, parts=(*parts, part)))
    part = RecipePart(label, "", f"hr.open([{len(known)} files])", "exact", "", "source")
    lengths = [one.source.length for one in known]
    source = replace(
        first.source,
        constants={**first.source.constants, name: literal(single)},
        parts=(*parts, part),
        length=None if None in lengths else sum(length or 0 for length in lengths),
    )
    return replace(first, source=source)


def _outline(sample: KnownSample) -> tuple[str, ...]:
    """Return what has to be the same of datasets that are opened together."""
    value = re.sub(r"examples=\([^()]*(\([^()]*\)[^()]*)*\)", "", repr(sample.value))
    source: DataSource = sample.source
    return (value, source.code, repr(sorted(source.columns.items())), source.constants.get("ROOT", ""))


def parts_of(dataset: Any) -> list[Any] | None:
    """Return the datasets that a ConcatDataset holds; None of any other."""
    listed = vars(dataset).get("datasets") if class_of(dataset) == CONCATENATED else None
    return listed if isinstance(listed, list) and all(isinstance(one, StandIn) for one in listed) else None
