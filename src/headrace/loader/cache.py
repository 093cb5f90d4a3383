"""The cache of a Loader: what is kept of which field, and where its entries lie."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace import _core
from headrace._core import Limits
from headrace.cache import CacheStats, Store, identity_of, parse_spec
from headrace.data import Dataset
from headrace.data.content_sample import content_sample
from headrace.data.sample_arrays import file_versions
from headrace.feed.cuts import FILE, FieldCut, cut_of, deterministic_ops, text_words
from headrace.feed.kept_tokens import KeptTokens
from headrace.fields import Field, Image, Spatial
from headrace.fields.tokens import ResolvedText
from headrace.loader.decoding.pixels import core_options
from headrace.plan import EpochPlan, ShapePlan
from headrace.tokens.sequences import ENTRY_FORMAT
from headrace.views.views import Program

PIXELS_VERSION = 1
"""Part of what a cache is known by. Raise it with any change to the pixels that the core makes of the same file."""

_AFTER_BYTES = ("dtype", "subtract", "divide")
"""What pictures are kept before: floats are made of the bytes anew."""

Fields = tuple[tuple[str, Field, str], ...]
Texts = tuple[ResolvedText, ...]


@dataclass(frozen=True)
class FeedCache:
    """Entries lie field after field, and in each by base id, so that every selection of a dataset shares them."""

    store: Store
    cuts: Mapping[str, FieldCut]
    """Of the fields that the core reads."""
    words: Mapping[str, str]
    """What is kept of each field."""
    length: int
    """Samples of the whole dataset."""
    first_tokens: Mapping[str, int]
    """The first entry of each text field whose ids are kept. They lie after all others, by the texts' numbers."""

    def options(self, field: str, *, is_raw: bool) -> dict[str, Any]:
        """What the core is told about a field."""
        first = list(self.cuts).index(field) * self.length
        options: dict[str, Any] = {"cache": self.store.native, "cache_first": first}
        return options if is_raw else {**options, "cut": self.cuts[field].cut}

    def tokens(self, text: ResolvedText) -> KeptTokens | None:
        """Where ids of a text field are kept; None where they are not."""
        first = self.first_tokens.get(text.name)
        return None if first is None else KeptTokens(self.store, first, text.field.max_length)

    def owned_by(self, owner: object) -> FeedCache:
        """Closed with `owner`, since passes, which refer to themselves, are freed whenever garbage is collected."""
        weakref.finalize(owner, self.store.close)
        return self

    def stats(self) -> CacheStats:
        return replace(self.store.stats(), cuts=self.words)


def open_cache(
    text: str,
    dataset: Dataset,
    plan: EpochPlan,
    program: Program,
    fields: tuple[Fields, Fields, Texts],
    limits: Limits,
) -> FeedCache:
    """Opens what earlier runs or other ranks have kept, or makes it. `fields`: of pixels, of members' bytes, of texts.
    Raises UsageError for what `text` says, and what a Store raises."""
    spec = parse_spec(text)
    images, raws, texts = fields
    shaped = isinstance(plan, ShapePlan) and program.output_size is None  # filled up, step by step
    one_view = not shaped and not program.drawn_per_step
    cuts = {
        name: cut_of(field, program, one_view=one_view) if isinstance(field, Spatial) else FILE
        for name, field, _ in (*images, *raws)
    }
    length = len(dataset.table)
    first_tokens, entries = _place_tokens(texts, len(cuts) * length, length)
    what = [
        PIXELS_VERSION,
        dataset.table.digest,
        _core.codec_versions(),
        _pillow_version(),
        [limits.max_pixels, limits.max_jpeg_scans, limits.max_png_chunk_bytes, limits.max_file_bytes],
        [[column, *_made_how(field, cuts[name], program)] for name, field, column in (*images, *raws)],
        [[ENTRY_FORMAT, each.column, each.encoder.identity] for each in texts if each.name in first_tokens],
    ]
    columns = dict.fromkeys(column for _, _, column in (*images, *raws))
    whole = Dataset(dataset.table)
    files = [dataset.table.bytes_of(column) for column in columns]
    stamp = [[file_versions(whole, each), content_sample(length, each)] for each in files]
    words = {name: cut.words for name, cut in cuts.items()} | {each.name: text_words(each) for each in texts}
    return FeedCache(Store(spec, identity_of(entries, what, stamp)), cuts, words, length, first_tokens)


def _place_tokens(texts: Texts, end: int, length: int) -> tuple[dict[str, int], int]:
    """The first entry of each text field whose tokenizer has an identity, from `end` on, and the end of all."""
    firsts = {}
    for text in texts:
        if text.encoder.identity is not None:
            firsts[text.name] = end
            end += length if text.held is None else len(text.held)
    return firsts, end


def _made_how(field: Field, cut: FieldCut, program: Program) -> list[Any]:
    """All that the bytes of a field's entries depend on, beside the files."""
    if not isinstance(field, Spatial) or cut.cut == "file":
        return [cut.cut]
    options = {name: _plain(value) for name, value in core_options(field, program.fill).items()}
    if isinstance(field, Image) and not field.wide:
        options = {name: value for name, value in options.items() if name not in _AFTER_BYTES}
    return [cut.cut, options, deterministic_ops(program).tolist() if cut.cut == "final" else None]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=16).hexdigest()
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def _pillow_version() -> str | None:
    from importlib import metadata  # brings the whole of email

    try:
        return metadata.version("pillow")
    except metadata.PackageNotFoundError:
        return None
