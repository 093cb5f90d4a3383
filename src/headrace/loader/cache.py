"""Cache of a loader between epochs: files' bytes, the deterministic part of the pixels, and token ids."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import ViewKind
from headrace.cache import CacheStats, Store, identity_of, parse_spec
from headrace.data import ITEM, ByteColumn, Dataset, content_sample, file_versions
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
from headrace.loader.batch_values import BatchRows
from headrace.loader.cache_admission import Admission, least_bytes, samples_that_fit
from headrace.loader.cache_eviction import CacheEviction
from headrace.loader.decoding.arrays import Ints
from headrace.loader.decoding.pixels import core_options, decoded_with, own_program, pixel_versions
from headrace.loader.recipe import Recipe
from headrace.plan import NextUses, NodeRanks, ShapedPlan, UniformPlan, can_plan_uses
from headrace.views import Program

Cut = Literal["file", "shrunk", "final"]

_RANDOM_KINDS = (ViewKind.RANDOM_RESIZED_CROP, ViewKind.RANDOM_CROP, ViewKind.QUARTER_TURN)
_FLIP_KINDS = (ViewKind.HORIZONTAL_FLIP, ViewKind.VERTICAL_FLIP)


FILES_BYTES = "files' bytes"


def cut_of(field: Spatial, program: Program, *, one_view: bool) -> tuple[Cut, str]:
    """Return the deepest cut that is identical in every epoch: the core's name for it, and a description.

    `one_view`: all batches have the program's own view, without padding to a planned shape.
    """
    flips = any(int(op[0]) in _FLIP_KINDS and op[1] > 0 for op in program.ops)
    drawn = any(
        int(op[0]) in _RANDOM_KINDS or (int(op[0]) in _FLIP_KINDS and op[1] > 0) for op in ops_before_flips(program)
    )
    if one_view and not drawn and not (isinstance(field, Normals) and flips):
        return "final", _final_words(field, program.output_size, flips=flips)
    if isinstance(field, Image) and field.shrink_to is not None:
        return "shrunk", f"{_shrunk_words(field.shrink_to)}, for a random view"
    return "file", f"{FILES_BYTES}, for {'a random view' if one_view else 'views that change by batch'}"


def ops_before_flips(program: Program) -> NDArray[np.float64]:
    """Return the steps before the final flips, which are undone before pixels are cached."""
    end = len(program.ops)
    while end and int(program.ops[end - 1, 0]) in _FLIP_KINDS:
        end -= 1
    return program.ops[:end]


def _shrunk_words(short_side: int) -> str:
    return f"pixels whose short side is at most {short_side}"


def _final_words(field: Spatial, size: tuple[int, int] | None, *, flips: bool) -> str:
    kind = f"{field.dtype} values"
    if isinstance(field, Image):
        kind = "uint8 pixels" + ("" if field.dtype == "uint8" else f" before they become {field.dtype}")
    if isinstance(field, Depth) and field.valid:
        kind += " and validity"
    if size is not None and isinstance(field, Image):
        size = size[0] * field.scale, size[1] * field.scale
    shape = "" if size is None else f"{size[0]}x{size[1]} "
    if size is not None and not isinstance(field, Mask | Depth):
        shape = f"{size[0]}x{size[1]}x{field.channel_count if isinstance(field, Image) else 3} "
    return f"{shape}{kind}" + (", before flips" if flips else "")


Encode = Callable[[list[str]], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class TokenCache:
    """Cached token ids of one text field, by text number."""

    store: Store
    first: int
    most: int
    """Maximum number of ids of a text."""

    def encoded(self, texts: Sequence[str], numbers: Ints, encode: Encode) -> Sequences:
        """Return the ids of each text. Encode the missing texts with one call of `encode`, and cache their ids."""
        entries = self.first + numbers
        found = from_entries(*self.store.get_many(entries), most=self.most)
        missing = np.flatnonzero(found.lengths == ABSENT)
        if not len(missing):
            return found
        made = Sequences.of(encode([texts[row] for row in missing.tolist()]))
        self.store.put_many(entries[missing], *to_entries(made))
        return found.with_missing(made)


_AFTER_BYTES = ("dtype", "subtract", "divide")
"""Options applied after the cached pixels: floats are computed from the bytes on every read."""


@dataclass(frozen=True)
class EpochCache:
    """Cache of a Loader. Entries are ordered by field, then base id, so that all selections of a dataset share them."""

    store: Store
    cuts: Mapping[str, Cut]
    """Cut of the entries of each field that the core reads (core/batch/job.hpp)."""
    words: Mapping[str, str]
    """Description of the cached content of each field."""
    columns: Mapping[str, str]
    """Column that each cached field reads."""
    first: Mapping[str, int]
    """First entry of each field. Those of several images a sample come last, with an entry per image."""
    first_tokens: Mapping[str, int]
    """First entry of each text field with cached ids. Token entries follow those of all samples, by text number."""
    image_cuts: Mapping[str, Cut]
    """Cut of the entries of each field of several images a sample."""
    eviction: CacheEviction | None = None
    """Eviction in favour of samples that the node reads earlier; None if nothing is evicted, as on one node."""
    admission: Admission | None = None
    """Samples to store; None: all, as long as there is room."""

    def place(self, field: str) -> tuple[_core.Store, int, str]:
        """Return the place of a field in the cache: the store, the field's first entry, and its cut."""
        return self.store.native, self.first[field], self.cuts[field]

    def of_images(self, field: str) -> EpochCache:
        """Return the cache of the images of a field of several a sample, whose ids are those of its images."""
        return replace(self, cuts={field: self.image_cuts[field]}, columns={field: ITEM}, eviction=None, admission=None)

    def has_all(self, column: str, base_ids: Ints) -> NDArray[np.bool_]:
        """Return for each sample whether all fields of `column` are cached, so that its bytes need not be read."""
        fields = [field for field in self.cuts if self.columns[field] == column]
        found = np.full(len(base_ids), bool(fields))
        for field in fields:
            native, first, _ = self.place(field)
            found &= native.has_many(base_ids + first).view(np.bool_)
        return found

    def keeps(self, rows: BatchRows) -> NDArray[np.uint8] | None:
        """Return a flag per row, 1 to store it; None for all rows."""
        if self.eviction is not None:
            return self.eviction.keeps(rows.base_ids, epoch=rows.plan.epoch, step=rows.plan.step)
        return None if self.admission is None else self.admission.keeps(rows.samples)

    def tokens(self, text: ResolvedText) -> TokenCache | None:
        """Return the token cache of a text field; None if its ids are not cached."""
        first = self.first_tokens.get(text.name)
        return None if first is None else TokenCache(self.store, first, text.field.max_length)

    def stats(self) -> CacheStats:
        evicted = 0 if self.eviction is None else self.eviction.evicted
        found = replace(self.store.stats(), cuts=self.words, evicted=evicted)
        if self.admission is None or found.limit_bytes - found.used_bytes > self.admission.spare_bytes:
            return found
        return replace(found, stopped=found.stopped or "full")


def open_cache(text: str, recipe: Recipe, node: NodeRanks | None) -> EpochCache:
    """Open the cache of earlier runs or other ranks, or create it.

    `node` has the ranks that share the cache, if known. Raises UsageError for a bad `text`, and the errors of a Store.
    """
    spec = parse_spec(text)
    dataset, plan, program, limits = recipe.dataset, recipe.plan, recipe.program, recipe.limits
    images, raws, texts = recipe.images, recipe.raws, recipe.texts
    shaped = isinstance(plan, ShapedPlan) and program.output_size is None  # padded, step by step
    one_view = not shaped and not program.drawn_per_step
    views = {name: own_program(field, program) or program for name, field, _ in images}
    cuts: dict[str, Cut] = {}
    words: dict[str, str] = {}
    for name, field, _ in (*images, *raws):
        cuts[name], words[name] = "file", FILES_BYTES
        if isinstance(field, Spatial):
            cuts[name], words[name] = cut_of(field, views[name], one_view=one_view or views[name] is not program)
    for (name, field, _), first in zip(images, decoded_with(images), strict=True):
        if first >= 0:  # fields with several views of one decode
            short_side = field.shrink_to if isinstance(field, Image) else None
            cuts[name] = "file" if short_side is None else "shrunk"
            words[name] = f"{FILES_BYTES if short_side is None else _shrunk_words(short_side)}, for several views"
        if first >= 0 and images[first][0] != name:
            del cuts[name]
            words[name] = f"those of {images[first][0]!r}"
    length = len(dataset.table)
    firsts = {name: number * length for number, name in enumerate(cuts)}
    entries = len(cuts) * length
    first_tokens: dict[str, int] = {}
    for each in texts:  # tokens are cached if the tokenizer has an identity
        bytes_too = f"{FILES_BYTES}, " if each.held is None else ""
        if each.encoder.identity is None:
            words[each.name] = f"{bytes_too or 'nothing, '}for its tokenizer has no version"
            continue
        words[each.name] = f"{bytes_too}and tokens" if bytes_too else "tokens"
        first_tokens[each.name] = entries
        entries += length if each.held is None else len(each.held)
    image_cuts: dict[str, Cut] = {}
    for name, field, items in recipe.lists:
        views[name] = own_program(field.image, program) or program
        one = one_view or views[name] is not program
        image_cuts[name], words[name] = cut_of(field.image, views[name], one_view=one)
        firsts[name] = entries
        entries += len(items.dataset)
    all_cuts = cuts | image_cuts
    from importlib import metadata  # slow: imports all of email

    try:
        pillow = metadata.version("pillow")
    except metadata.PackageNotFoundError:
        pillow = None
    what = [
        dataset.table.digest,
        pixel_versions(),
        pillow,
        [limits.max_pixels, limits.max_jpeg_scans, limits.max_png_chunk_bytes, limits.max_file_bytes],
        [
            [column, *_entry_identity(field, all_cuts[name], views.get(name, program))]
            for name, field, column in (*recipe.pictures, *raws)
            if name in all_cuts
        ],
        *([[items.dataset.table.digest for _, _, items in recipe.lists]] if recipe.lists else []),
        [[ENTRY_FORMAT, each.column, each.encoder.identity] for each in texts if each.name in first_tokens],
    ]
    columns = dict.fromkeys(column for _, _, column in (*images, *raws))
    whole = Dataset(dataset.table)
    stamp = [_content_stamp(whole, dataset.table.bytes_of(column), length) for column in columns]
    stamp += [
        _content_stamp(items.dataset, items.dataset.table.bytes_of(ITEM), len(items.dataset))
        for _, _, items in recipe.lists
    ]
    of = {name: column for name, _, column in (*images, *raws) if name in cuts}
    eviction = None
    is_shared = node is not None and node.nodes(plan.world_size) > 1
    if node is not None and is_shared and not recipe.lists and isinstance(plan, UniformPlan) and can_plan_uses(plan):
        uses = NextUses(plan, node, base_ids=dataset.base_ids, count=length)
        eviction = CacheEviction(uses, fields=len(cuts), length=length, steps=plan.steps)
        what.append("reused")  # another file layout than on one node, in a separate file
    store = Store(spec, identity_of(entries, what, stamp), reuses=eviction is not None)
    admission = None
    if eviction is None and (images or raws):
        kept = [(field, cuts[name], views[name].output_size) for name, field, _ in images if name in cuts]
        pixel_bytes = sum(least_bytes(*each) for each in kept if each[1] != "file")
        files_of = [of[name] for name, cut in cuts.items() if cut == "file"]
        admission = samples_that_fit(dataset, plan, files_of, pixel_bytes, room_bytes=store.native.room_bytes)
    return EpochCache(store, cuts, words, of, firsts, first_tokens, image_cuts, eviction, admission)


def _content_stamp(dataset: Dataset, files: ByteColumn, length: int) -> list[Any]:
    """Return a fingerprint of the files' content: versions, and a sample of local files' bytes.

    Objects are not read if their store reports versions. Reading would take dozens of sequential requests, and a store
    that fails for a moment would look like other content.
    """
    versions = file_versions(dataset, files)
    stated = files.files.is_remote and None not in versions
    return [versions, None if stated else content_sample(length, files)]


def _entry_identity(field: Field, cut: Cut, program: Program) -> list[Any]:
    """Return everything that the bytes of a field's entries depend on, apart from the files."""
    if not isinstance(field, Spatial) or cut == "file":
        return [cut]
    options = {name: _plain(value) for name, value in core_options(field, program.fill).items()}
    if isinstance(field, Image) and not field.wide:
        options = {name: value for name, value in options.items() if name not in _AFTER_BYTES}
    return [cut, options, ops_before_flips(program).tolist() if cut == "final" else None]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=16).hexdigest()
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
