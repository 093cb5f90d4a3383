"""Faults of samples: their order, what no epoch visits, duplicates, substitutes, and attended padding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from headrace.doctor.explain import TokensExplanation, ValueExplanation
from headrace.doctor.explain.look import LeafPath, Look, LookedSample
from headrace.doctor.explain.samples import spread
from headrace.doctor.faults.fault_kinds import INTENDED, Explained, FaultKind, leaf_name
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import order_described, short_class

_LEAST_SAMPLES = 50
"""Minimum number of samples whose order means anything."""
_LEAST_REACHED, _REACHED = 0.01, 0.9
"""Least gradient of a token as a share of that of texts, and share of padded tokens that it reaches."""
_LABELS = ("equal", "class", "one-hot", "affine")


CLASS_ORDER = FaultKind(
    "class-order",
    "The training loader takes samples in {order}, and {0} comes in {runs} runs of equal values for {classes} classes; "
    "a random order of {looked} samples has about {expected:.0f}.",
    "Pass shuffle=True to the training DataLoader, or a sampler that shuffles.",
    "a sequential sampler or a stream, and fewer runs of equal labels than a quarter of what chance gives",
)


def class_order(look: Look, explained: Explained, loader: Mapping[str, Any]) -> Iterator[DataFault]:
    """Yield a training order that is the order of the classes: long runs of equal labels."""
    if not _is_sequential(loader):
        return
    for path, labels in _labels_of(look, explained):
        if (runs := class_runs([labels])) is not None:
            yield CLASS_ORDER.found(path, order="their stored order", **runs._asdict())


class ClassRuns(NamedTuple):
    """Runs of equal labels, which a random order would not have."""

    runs: int
    classes: int
    looked: int
    expected: float
    """Runs of a random order."""


def class_runs(sequences: Sequence[Sequence[Any]]) -> ClassRuns | None:
    """Return the runs of labels in sequences that are ordered by class, such as each worker's; None if they are not."""
    counts = Counter(str(label) for labels in sequences for label in labels)
    looked, classes = sum(counts.values()), len(counts)
    if looked < _LEAST_SAMPLES or classes < 2:
        return None
    runs = sum(1 + sum(one != other for one, other in pairwise(labels)) for labels in sequences)
    expected = looked * (1 - sum(count**2 for count in counts.values()) / looked**2)
    is_ordered = runs <= 2 * classes * len(sequences) and runs < expected / 4
    return ClassRuns(runs, classes, looked, expected) if is_ordered else None


def _labels_of(look: Look, explained: Explained) -> Iterator[tuple[LeafPath, list[Any]]]:
    """Yield each leaf that a column explains, and the column's value of each sample that the loader takes."""
    for path, one in explained.items():
        by = one.by
        if isinstance(by, ValueExplanation) and by.kind in _LABELS and by.column in look.columns:
            column = look.columns[by.column]
            yield path, list(column) if look.chosen is None else [column[index] for index in look.chosen]


NEVER_VISITED = FaultKind(
    "never-visited",
    "drop_last leaves the last {count} of {looked} samples out of every epoch, since they are taken in their "
    "stored order.",
    "Pass shuffle=True, or leave out drop_last.",
    "a sequential sampler with drop_last, and a length that the batch size does not divide",
)


def never_visited(look: Look, explained: Explained, loader: Mapping[str, Any]) -> Iterator[DataFault]:
    """Yield samples that `drop_last` leaves out of every epoch, since the order is always the same."""
    given = loader.get("batch_sampler") or {}
    options = given.get("attributes", {}) if short_class(given) == "BatchSampler" else {}
    size, length = options.get("batch_size"), look.length if look.chosen is None else len(look.chosen)
    if not (_is_sequential(loader) and options.get("drop_last") and isinstance(size, int) and length):
        return
    left = length % size
    if left:
        yield NEVER_VISITED.found(count=left, looked=length)


def _is_sequential(loader: Mapping[str, Any]) -> bool:
    return short_class(order_described(loader)) == "SequentialSampler"


DUPLICATE_FILES = FaultKind(
    "duplicate-files",
    "{count} samples of {looked} {what}: {some}.",
    "Remove the repeated rows or files, or use a sampler with weights if they should count more.",
    "rows of the dataset's columns are equal in all columns, the path among them; `unless intended`, as to "
    "show a class more often",
)


def duplicate_samples(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield samples that are listed several times: all columns are equal, a path among them."""
    paths = [name for name, column in look.columns.items() if _names_files(look, name, column)]
    if not paths or look.is_stream:
        return
    chosen = range(len(next(iter(look.columns.values())))) if look.chosen is None else look.chosen
    rows = Counter(tuple(str(column[index]) for column in look.columns.values()) for index in chosen)
    again = {row: count for row, count in rows.items() if count > 1}
    if again:
        at = list(look.columns).index(paths[0])
        some = [f"{row[at]} ({count} times)" for row, count in again.items()]
        what = "are listed several times, with the same file and the same values"
        yield DUPLICATE_FILES.found(certainty=INTENDED, count=len(again), looked=len(chosen), what=what, some=some)


def _names_files(look: Look, name: str, column: Sequence[Any]) -> bool:
    """Return True if a column names a file that each sample looked at has read."""
    if not look.samples or not all(isinstance(each, str) for each in column):
        return False
    return all(
        any(path is not None and path.endswith(column[each.index].rsplit("/", 1)[-1]) for path, _ in each.places)
        for each in look.samples
        if each.index < len(column) and column[each.index]
    ) and any(each.places for each in look.samples)


SUBSTITUTED_SAMPLE = FaultKind(
    "substituted-sample",
    "{count} samples of {looked} that were looked at are made from the file of another sample, since their own "
    "cannot be decoded or is missing: {some}.",
    "Remove such files from the list; let __getitem__ raise, or count what it replaces.",
    "the only decoded file of a sample is listed for another sample, while all other samples decode their own",
)


def substituted_samples(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield samples for which a dataset returned another sample, since their own file cannot be decoded."""
    for column in () if look.is_stream else look.columns.values():
        rows = {each: index for index, each in enumerate(column) if isinstance(each, str)}
        if len(rows) != len(column):
            continue
        decoded = {each.index: _rows_decoded(each, rows) for each in [*spread(look.samples), *look.odd]}
        replaced = {index: found for index, found in decoded.items() if len(found) == 1 and found != {index}}
        unproved = replaced.keys() - {each.index for each in look.odd}
        if replaced and len(unproved) <= len(decoded) / 4 and all(decoded[i] == {i} for i in decoded.keys() - replaced):
            some = [f"{column[index]} (made from {column[min(found)]})" for index, found in replaced.items()]
            yield SUBSTITUTED_SAMPLE.found(count=len(replaced), looked=len(decoded), some=some)
            return


def _rows_decoded(sample: LookedSample, rows: Mapping[str, int]) -> set[int]:
    """Return the rows of a column of paths whose files a sample decoded."""
    found = set()
    for (path, _), decodings in zip(sample.places, sample.pictures, strict=True):
        parts = (path or "").split("/") if decodings else []
        ends = ("/".join(parts[place:]) for place in range(len(parts)))
        found |= {rows[end] for end in ends if end in rows}
    return found


ATTENDED_PADDING = FaultKind(
    "attended-padding",
    "{what} padding ({pad_id}), which {count} of {looked} samples have.",
    "Use the tokenizer's own attention mask, or ids != pad_id, in attention and in pooling.",
    "a leaf next to padded token ids is one everywhere; `unless intended`, if the gradient of the loss reaches the "
    "embeddings of nine in ten padded tokens. Padding is what the tokenizer adds, or a number that only fills up "
    "shorter rows",
)


def attended_padding(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield attention masks that are one everywhere, although the tokens next to them are padded."""
    found = set[LeafPath]()
    for path, one in explained.items():
        ids = [each.leaves[path].value for each in look.samples]
        end, pad_id = (-1, one.by.pad_id) if isinstance(one.by, TokensExplanation) else _padding(ids)
        pairs = zip(look.samples, ids, strict=True)
        padded = [each for each, row in pairs if pad_id is not None and row.reshape(-1)[end] == pad_id]
        for other in explained if padded else ():
            if other not in found and all(_is_whole_mask(each.leaves[other].value, ids[0].size) for each in padded):
                found.add(other)
                what = f"{leaf_name(other)} is one for all {ids[0].size} tokens of {leaf_name(path)}, also for"
                count, looked = len(padded), len(look.samples)
                yield ATTENDED_PADDING.found(path, other, what=what, pad_id=pad_id, count=count, looked=looked)


def embedded_padding(session: Session) -> Iterator[DataFault]:
    """Yield models whose loss depends on the padding of their token ids."""
    for trainer in session.trainers:
        for ids, gradients in session.process_facts(trainer).get("facts", {}).get("embedded", []):
            rows, reached = np.array(ids), np.array(gradients)
            end, pad_id = _padding(list(rows))
            if pad_id is None:
                continue
            is_pad = rows == pad_id
            is_counted = reached > _LEAST_REACHED * reached[~is_pad].mean()
            inside = is_pad & np.roll(is_pad, -1 if end == 0 else 1, axis=1)
            first = is_pad & ~inside  # the end of a text may have the number of padding
            last = rows[np.roll(first, -1, axis=1)]
            has_end = end != 0 and bool((last == rows[~is_pad].max()).all())
            places = [inside, first] if has_end else [inside]
            if any(each.any() and is_counted[each].mean() >= _REACHED for each in places):
                what = "The gradient of the loss reaches embedded"
                count = int(is_pad[:, end].sum())
                yield ATTENDED_PADDING.found(
                    certainty=INTENDED, what=what, pad_id=pad_id, count=count, looked=len(rows)
                )
                return


def _padding(rows: Sequence[Any]) -> tuple[int, int | None]:
    """Return the index of the padded end of rows of one length, and the number that fills it; None without padding."""
    if not all(isinstance(row, np.ndarray) and row.dtype.kind in "iu" for row in rows):
        return -1, None
    flat = [row.reshape(-1) for row in rows]
    if len({row.size for row in flat}) != 1 or flat[0].size < 2:
        return -1, None
    pad_id = _pad_id(flat)
    return (-1, pad_id) if pad_id is not None else (0, _pad_id([row[::-1] for row in flat]))


def _pad_id(flat: Sequence[np.ndarray[Any, Any]]) -> int | None:
    """Return the number that fills up the end of rows, and that no row holds before; None if there is none."""
    pads = Counter(int(row[-1]) for row in flat if row[-1] == row[-2])
    pad_id, _ = max(pads.items(), key=lambda each: each[1], default=(-1, 0))
    used = [row.size - int((row == pad_id).sum()) for row in flat]
    is_tail = all((row[:length] != pad_id).all() for row, length in zip(flat, used, strict=True))
    return pad_id if pad_id >= 0 and is_tail and len(set(used)) > 1 and min(used) else None


def _is_whole_mask(mask: Any, length: int) -> bool:
    return isinstance(mask, np.ndarray) and mask.size == length and bool(np.all(mask == 1))
