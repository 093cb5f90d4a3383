"""How long a dataset's texts are in tokens, before a batch of them is made."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.cores import default_threads
from headrace.data import Dataset
from headrace.data.mapped import mapped
from headrace.data.member_reading import read_members
from headrace.data.sample_arrays import Kept, file_versions
from headrace.data.storage.sidecar import cache_folder
from headrace.fields.values import Captions, check_max_length, most_bytes
from headrace.tokens.encoder import Encoder
from headrace.tokens.resolving import resolve_tokenizer
from headrace.tokens.texts import HeldTexts, Ints, UnfitTextError, decoded, texts_of

Lengths: TypeAlias = NDArray[np.int32]

FORMAT = "headrace token lengths 2"
"""Raise the number whenever the meaning of a kept file changes."""
UNKNOWN = -1

_BLOCK = 1024
"""Samples at a time: enough to keep all cores of a native tokenizer busy, few enough to take no memory."""
_WORTH_KEEPING = 1024
"""Fewer texts are encoded each time, which takes no longer than to look for what was kept."""


def token_lengths(
    dataset: Dataset,
    column: str,
    tokenizer: Any,
    *,
    max_length: int,
    captions: Captions = "random",
    max_bytes: int | None = None,
    version: str | None = None,
    threads: int | None = None,
    cache: str | None = None,
) -> Lengths:
    """int32[len(dataset.table)], by base id, read-only: the tokens of each sample's text in `column`, special ones
    included, once it is cut to `max_length`; -1 where a sample has no text that can be used, or is not in the dataset.

    Arguments are those of `hr.Text`, and `column` is its source. Of several captions the longest counts, unless
    `captions` is "first". Members are read in `threads` native threads (None: one a core). What is found is kept, in
    the folder `cache` or else in the default cache folder, so that the next call maps it from there: for these samples,
    this tokenizer and this length, if it is a function then only with a `version`.

    Raises UsageError for what is no column of texts, or no tokenizer, and where reading fails what `Dataset.read`
    raises.
    """
    check_max_length(max_length)
    encoder = resolve_tokenizer(tokenizer, max_length=max_length, version=version)
    most = most_bytes(max_length) if max_bytes is None else max_bytes
    return encoded_lengths(
        dataset, column, encoder, captions=captions, max_bytes=most, threads=threads, cache=cache, place="token_lengths"
    )


def encoded_lengths(
    dataset: Dataset,
    column: str,
    encoder: Encoder,
    *,
    captions: Captions,
    max_bytes: int,
    threads: int | None,
    cache: str | None,
    place: str,
) -> Lengths:
    """The same by an encoder that is there already. `place` begins the text of errors."""
    held = texts_of(dataset, column, place)

    def measure() -> Lengths:
        count = default_threads() if threads is None else threads
        found = mapped((len(dataset.table),), np.int32)
        found[:] = UNKNOWN
        blocks = (
            _blocks_read(dataset, column, count, max_bytes)
            if held is None
            else _blocks_held(dataset, held, captions, max_bytes)
        )
        for ids, texts in blocks:
            ends = np.array([len(each) for each in encoder.encode(texts)], np.int32)
            np.maximum.at(found, ids, ends)
        return found

    if encoder.identity is None or len(dataset) < _WORTH_KEEPING:
        found = measure()
        found.flags.writeable = False
        return found
    what = f"the lengths of {len(dataset):,} texts"
    lost = f"{what} cannot be kept, so each start encodes them again"
    kept = Kept(FORMAT, "lengths", what, least=UNKNOWN, lost=lost)
    known = [FORMAT, dataset.fingerprint, column, encoder.identity, captions, max_bytes]
    if held is None:
        known.append(file_versions(dataset, dataset.table.bytes_of(column)))
    name = f"tokens.{hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()}.headrace"
    place_kept = os.path.join(cache_folder() if cache is None else os.path.abspath(cache), name)
    return kept.keep(place_kept, len(dataset.table), measure)


def _base_ids(dataset: Dataset, positions: Ints) -> Ints:
    return positions if dataset.base_ids is None else dataset.base_ids[positions]


def _blocks_held(
    dataset: Dataset, held: HeldTexts, captions: Captions, max_bytes: int
) -> Iterator[tuple[Ints, list[str]]]:
    """Texts that can be used, and the base id of whose each is."""
    for start in range(0, len(dataset), _BLOCK):
        ids = _base_ids(dataset, np.arange(start, min(start + _BLOCK, len(dataset))))
        first, counts = held.ranges(ids)
        if captions == "first":
            counts = np.minimum(counts, 1)
        which = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        for at in range(0, len(which), _BLOCK):
            part = slice(at, at + _BLOCK)
            yield _usable(np.repeat(ids, counts)[part], held.take(which[part]), max_bytes)


def _blocks_read(dataset: Dataset, column: str, threads: int, max_bytes: int) -> Iterator[tuple[Ints, list[str]]]:
    for positions, members in read_members(dataset, column, block=_BLOCK, threads=threads, most_bytes=max_bytes):
        yield _usable(_base_ids(dataset, positions), members, max_bytes)


def _usable(ids: Ints, texts: list[bytes] | list[bytes | None], max_bytes: int) -> tuple[Ints, list[str]]:
    rows, found = [], []
    for row, data in enumerate(texts):
        if data is None:
            continue
        try:
            found.append(decoded(data, max_bytes))
        except UnfitTextError:
            continue
        rows.append(row)
    return ids[rows], found
