"""What a loader caches between epochs: files' bytes, the deterministic part of the pixels, and token ids."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import Limits
from headrace.cache import CacheStats, Store, identity_of, parse_spec
from headrace.data import Dataset, content_sample, file_versions
from headrace.fields import (
    ABSENT,
    ENTRY_FORMAT,
    Depth,
    Field,
    Image,
    Mask,
    Normals,
    ResolvedText,
    Sequences,
    Spatial,
    from_entries,
    to_entries,
)
from headrace.loader.decoding.arrays import Ints
from headrace.loader.decoding.pixels import core_options
from headrace.plan import EpochPlan, ShapedPlan
from headrace.views import Program

Cut = Literal["file", "shrunk", "final"]

# Kinds of steps in core/view/program.hpp.
_RANDOM_KINDS = (1, 5)
_FLIP_KINDS = (7, 8)


@dataclass(frozen=True)
class FieldCut:
    """Depth of a field's cache entries. `cut` is the core's name for it (core/batch/cached_image.hpp)."""

    cut: Cut
    words: str


FILE = FieldCut("file", "files' bytes")


def cut_of(field: Spatial, program: Program, *, one_view: bool) -> FieldCut:
    """Return the deepest cut that is the same in every epoch.

    `one_view` says that all batches have the program's own view, without padding to a planned shape.
    """
    window, flips = _split(program.ops)
    if one_view and not _is_random(window) and not (isinstance(field, Normals) and flips):
        return FieldCut("final", _final_words(field, program.output_size, flips=flips))
    if isinstance(field, Image) and field.shrink_to is not None:
        return FieldCut("shrunk", f"pixels whose short side is at most {field.shrink_to}, for a random view")
    return FieldCut("file", f"files' bytes, for {'a random view' if one_view else 'views that change by batch'}")


def text_words(text: ResolvedText) -> str:
    """Describe what is cached of a text field: tokens if something identifies its tokenizer."""
    read = text.held is None
    if text.encoder.identity is None:
        return f"{FILE.words if read else 'nothing'}, for its tokenizer has no version"
    return f"{FILE.words}, and tokens" if read else "tokens"


def deterministic_ops(program: Program) -> NDArray[np.float64]:
    """Return the steps before the final flips, which are undone before pixels are cached."""
    return _split(program.ops)[0]


def _split(ops: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
    end = len(ops)
    while end and int(ops[end - 1, 0]) in _FLIP_KINDS:
        end -= 1
    return ops[:end], any(int(op[0]) in _FLIP_KINDS and op[1] > 0 for op in ops)


def _is_random(ops: NDArray[np.float64]) -> bool:
    return any(int(op[0]) in _RANDOM_KINDS or (int(op[0]) in _FLIP_KINDS and 0 < op[1] < 1) for op in ops)


def _final_words(field: Spatial, size: tuple[int, int] | None, *, flips: bool) -> str:
    kind = f"{field.dtype} values"
    if isinstance(field, Image):
        kind = "uint8 pixels" + ("" if field.dtype == "uint8" else f" before they become {field.dtype}")
    if isinstance(field, Depth) and field.valid:
        kind += " and validity"
    shape = "" if size is None else f"{size[0]}x{size[1]}{_channels(field)} "
    return f"{shape}{kind}" + (", before flips" if flips else "")


def _channels(field: Spatial) -> str:
    return "" if isinstance(field, Mask | Depth) else f"x{field.channel_count if isinstance(field, Image) else 3}"


Encode = Callable[[list[str]], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class TokenCache:
    """Cached token ids of one text field, by the numbers of its texts."""

    store: Store
    first: int
    most: int
    """Most ids of a text."""

    def encoded(self, texts: Sequence[str], numbers: Ints, encode: Encode) -> Sequences:
        """Return the ids of each text. Encode those that are missing by one call of `encode`, and cache them."""
        entries = self.first + numbers
        found = from_entries(*self.store.get_many(entries), most=self.most)
        missing = np.flatnonzero(found.lengths == ABSENT)
        if not len(missing):
            return found
        made = Sequences.of(encode([texts[row] for row in missing.tolist()]))
        self.store.put_many(entries[missing], *to_entries(made))
        return found.with_missing(made)


PIXELS_VERSION = 1
"""Part of a cache's identity. Raise it with any change to the pixels that the core makes of the same file."""

_AFTER_BYTES = ("dtype", "subtract", "divide")
"""Options that come after the cached pixels: floats are made of the bytes anew."""

Fields = tuple[tuple[str, Field, str], ...]
Texts = tuple[ResolvedText, ...]


@dataclass(frozen=True)
class EpochCache:
    """Cache of a Loader. Entries lie field after field, by base id, so that all selections of a dataset share them."""

    store: Store
    cuts: Mapping[str, FieldCut]
    """Cuts of the fields that the core reads."""
    words: Mapping[str, str]
    """What is cached of each field, in words."""
    length: int
    """Samples of the whole dataset."""
    first_tokens: Mapping[str, int]
    """First entry of each text field whose ids are cached. They come after all others, by the texts' numbers."""

    def options(self, field: str, *, is_raw: bool) -> dict[str, Any]:
        """Return the core's arguments for a field."""
        first = list(self.cuts).index(field) * self.length
        options: dict[str, Any] = {"cache": self.store.native, "cache_first": first}
        return options if is_raw else {**options, "cut": self.cuts[field].cut}

    def tokens(self, text: ResolvedText) -> TokenCache | None:
        """Return the token cache of a text field; None if its ids are not cached."""
        first = self.first_tokens.get(text.name)
        return None if first is None else TokenCache(self.store, first, text.field.max_length)

    def owned_by(self, owner: object) -> EpochCache:
        """Close the store with `owner`: passes refer to themselves and are freed late."""
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
) -> EpochCache:
    """Open the cache of earlier runs or other ranks, or create it.

    `fields` are those of pixels, of raw bytes and of texts. Raises UsageError for a bad `text`, and what a Store
    raises.
    """
    spec = parse_spec(text)
    images, raws, texts = fields
    shaped = isinstance(plan, ShapedPlan) and program.output_size is None  # padded, step by step
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
        [[column, *_entry_identity(field, cuts[name], program)] for name, field, column in (*images, *raws)],
        [[ENTRY_FORMAT, each.column, each.encoder.identity] for each in texts if each.name in first_tokens],
    ]
    columns = dict.fromkeys(column for _, _, column in (*images, *raws))
    whole = Dataset(dataset.table)
    files = [dataset.table.bytes_of(column) for column in columns]
    stamp = [[file_versions(whole, each), content_sample(length, each)] for each in files]
    words = {name: cut.words for name, cut in cuts.items()} | {each.name: text_words(each) for each in texts}
    return EpochCache(Store(spec, identity_of(entries, what, stamp)), cuts, words, length, first_tokens)


def _place_tokens(texts: Texts, end: int, length: int) -> tuple[dict[str, int], int]:
    """Return the first entry of each text field that can be cached, from `end` on, and the end of all."""
    firsts = {}
    for text in texts:
        if text.encoder.identity is not None:
            firsts[text.name] = end
            end += length if text.held is None else len(text.held)
    return firsts, end


def _entry_identity(field: Field, cut: FieldCut, program: Program) -> list[Any]:
    """Return all that the bytes of a field's entries depend on, apart from the files."""
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
    from importlib import metadata  # imports all of email

    try:
        return metadata.version("pillow")
    except metadata.PackageNotFoundError:
        return None
