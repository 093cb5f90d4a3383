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
from headrace.data import Dataset
from headrace.data.sample_arrays import file_versions
from headrace.data.table import content_sample
from headrace.fields import Depth, Field, Image, Mask, Normals, Spatial
from headrace.fields.tokens import ResolvedText, Sequences
from headrace.fields.tokens.text_columns import ABSENT, ENTRY_FORMAT, from_entries, to_entries
from headrace.loader.decoding.arrays import Ints
from headrace.loader.decoding.pixels import core_options
from headrace.plan import EpochPlan, ShapedPlan
from headrace.views.views import Program

# -- from feed/cuts.py: How far each field of pixels is the same in every epoch: where a cache may cut.


Cut = Literal["file", "shrunk", "final"]

# Of core/view/program.hpp.
_RANDOM_KINDS = (1, 5)
_FLIP_KINDS = (7, 8)


@dataclass(frozen=True)
class FieldCut:
    """`cut` is what the core calls it (core/batch/cached_image.hpp)."""

    cut: Cut
    words: str


FILE = FieldCut("file", "files' bytes")


def cut_of(field: Spatial, program: Program, *, one_view: bool) -> FieldCut:
    """The deepest cut that is the same in every epoch. `one_view`: all batches have the program's own view, which fills
    nothing up."""
    window, flips = _split(program.ops)
    if one_view and not _is_random(window) and not (isinstance(field, Normals) and flips):
        return FieldCut("final", _final_words(field, program.output_size, flips=flips))
    if isinstance(field, Image) and field.shrink_to is not None:
        return FieldCut("shrunk", f"pixels whose short side is at most {field.shrink_to}, for a random view")
    return FieldCut("file", f"files' bytes, for {'a random view' if one_view else 'views that change by batch'}")


def text_words(text: ResolvedText) -> str:
    """What is kept of a text field: tokens where something tells its tokenizer from others."""
    read = text.held is None
    if text.encoder.identity is None:
        return f"{FILE.words if read else 'nothing'}, for its tokenizer has no version"
    return f"{FILE.words}, and tokens" if read else "tokens"


def deterministic_ops(program: Program) -> NDArray[np.float64]:
    """The steps before those flips that come last, which are undone before anything is kept."""
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


# -- from feed/kept_tokens.py: The ids of a text field in a cache: what is kept is not encoded again.


Encode = Callable[[list[str]], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class TokenCache:
    """Entries of a store by the numbers of the field's texts."""

    store: Store
    first: int
    most: int
    """Ids of a text."""

    def encoded(self, texts: Sequence[str], numbers: Ints, encode: Encode) -> Sequences:
        """The ids of each text. Those that are not kept are made by one call of `encode`, and kept."""
        entries = self.first + numbers
        found = from_entries(*self.store.get_many(entries), most=self.most)
        missing = np.flatnonzero(found.lengths == ABSENT)
        if not len(missing):
            return found
        made = Sequences.of(encode([texts[row] for row in missing.tolist()]))
        self.store.put_many(entries[missing], *to_entries(made))
        return found.with_missing(made)


# -- from feed/cache.py: The cache of a Loader: what is kept of which field, and where its entries lie.


PIXELS_VERSION = 1
"""Part of what a cache is known by. Raise it with any change to the pixels that the core makes of the same file."""

_AFTER_BYTES = ("dtype", "subtract", "divide")
"""What pictures are kept before: floats are made of the bytes anew."""

Fields = tuple[tuple[str, Field, str], ...]
Texts = tuple[ResolvedText, ...]


@dataclass(frozen=True)
class EpochCache:
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

    def tokens(self, text: ResolvedText) -> TokenCache | None:
        """Where ids of a text field are kept; None where they are not."""
        first = self.first_tokens.get(text.name)
        return None if first is None else TokenCache(self.store, first, text.field.max_length)

    def owned_by(self, owner: object) -> EpochCache:
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
) -> EpochCache:
    """Opens what earlier runs or other ranks have kept, or makes it. `fields`: of pixels, of members' bytes, of texts.
    Raises UsageError for what `text` says, and what a Store raises."""
    spec = parse_spec(text)
    images, raws, texts = fields
    shaped = isinstance(plan, ShapedPlan) and program.output_size is None  # filled up, step by step
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
    return EpochCache(Store(spec, identity_of(entries, what, stamp)), cuts, words, length, first_tokens)


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
