"""The native core as Python sees it. Arrays are borrowed, not copied; all of them are C-contiguous."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

RNG_VERSION: Final[int]
AUGMENT_COLUMNS: Final[int]
MAX_VIEW_OPS: Final[int]
MAX_COPIES: Final[int]
FLIPPED_FIRST: Final[int]
RETRY_WAITS_S: Final[tuple[float, ...]]

class Code(IntEnum):
    """Reasons why a sample could not be delivered."""

    DECLINED = 1
    CORRUPT = 2
    LIMIT = 3
    UNSUPPORTED = 4
    IO = 5
    CHANGED = 6
    CANCELLED = 7
    VIEW = 8
    UNFIT = 9
    MEMORY = 10
    OUTSIDE = 11
    MISSING = 12

class ViewKind(IntEnum):
    """First number of each step of a view program."""

    RANDOM_RESIZED_CROP = 1
    RESIZE_SHORT = 2
    RESIZE = 3
    CENTER_CROP = 4
    RANDOM_CROP = 5
    LETTERBOX = 6
    HORIZONTAL_FLIP = 7
    VERTICAL_FLIP = 8
    FIVE_CROP = 9
    TEN_CROP = 10
    TILES = 11
    QUARTER_TURN = 12

class ViewColumn(IntEnum):
    """Columns of a view as a row of numbers."""

    X0 = 0
    Y0 = 1
    X1 = 2
    Y1 = 3
    LEFT = 4
    TOP = 5
    RIGHT = 6
    BOTTOM = 7
    WIDTH = 8
    HEIGHT = 9
    INNER_X = 10
    INNER_Y = 11
    INNER_WIDTH = 12
    INNER_HEIGHT = 13
    HFLIP = 14
    VFLIP = 15
    TRANSPOSED = 16

class ReservedStage(IntEnum):
    """Stages of draws that are made in Python."""

    OFFSETS = 251
    DRAWS = 252
    MIXING = 253
    CAPTIONS = 254
    REPLACEMENTS = 255

class RowFailure(NamedTuple):
    row: int
    field: int
    code: Code
    stage: int
    why: str

def best_level() -> str: ...
def levels() -> list[str]: ...
def parse_level(name: str) -> str: ...
def codec_versions() -> str: ...
def return_freed_memory() -> None: ...

# --- errors of transport (core/batch/transport.hpp) ---

def may_pass(error: int) -> bool: ...
def loses_descriptor(error: int) -> bool: ...

# --- the random source (core/rng) ---

def hash64(a: int, b: int) -> int: ...
def permute(n: int, key: int, positions: NDArray[np.int64], *, inverse: bool = False) -> NDArray[np.int64]: ...
def permute_each(
    lengths: NDArray[np.int64],
    key: int,
    streams: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> NDArray[np.int64]: ...
def philox(key: int, counter: NDArray[np.uint32]) -> NDArray[np.uint32]: ...

# --- views (core/view) ---

def sample_views(
    program: NDArray[np.float64],
    key: int,
    ids: NDArray[np.int64],
    passes: NDArray[np.uint32],
    dataset: int,
    widths: NDArray[np.int32],
    heights: NDArray[np.int32],
    *,
    copy: int = 0,
) -> NDArray[np.float64]: ...
def scale_views(
    views: NDArray[np.float64], from_width: int, from_height: int, to_width: int, to_height: int
) -> NDArray[np.float64]: ...
def output_size(program: NDArray[np.float64]) -> tuple[int, int] | None: ...
def copies_of(program: NDArray[np.float64]) -> int | None: ...
def is_random(program: NDArray[np.float64]) -> bool: ...
def exact_exp(x: float) -> float: ...
def exact_log(x: float) -> float: ...

# --- augmentations (core/augment) ---

class Augmentation:
    def __init__(self, table: NDArray[np.float64]) -> None: ...

def draw_chain(
    augmentation: Augmentation, key: int, id: int, pass_: int, *, width: int, height: int, dataset: int = 0
) -> list[tuple[int, list[float]]]: ...
def apply_chain(
    pixels: NDArray[np.uint8], chain: Sequence[tuple[int, Sequence[float]]], *, level: str = "best"
) -> NDArray[np.uint8]: ...
def move_boxes(
    augmentation: Augmentation,
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    *,
    key: int,
    ids: NDArray[np.int64],
    passes: NDArray[np.uint32],
    width: int,
    height: int,
) -> NDArray[np.float64]: ...
def move_points(
    augmentation: Augmentation,
    points: NDArray[np.float64],
    rows: NDArray[np.int64],
    *,
    key: int,
    ids: NDArray[np.int64],
    passes: NDArray[np.uint32],
    width: int,
    height: int,
) -> NDArray[np.bool_]: ...
def move_masks(
    augmentation: Augmentation,
    masks: NDArray[np.uint8],
    *,
    key: int,
    id: int,
    pass_: int,
) -> None: ...
def exact_sin_cos(degrees: float) -> tuple[float, float]: ...

# --- outlines of instances (core/dense) ---

def nearest_pixels(begin: float, end: float, low: int, high: int, count: int, backward: bool) -> NDArray[np.int32]: ...
def paint_polygons(
    masks: NDArray[np.uint8],
    *,
    xy: NDArray[np.float64],
    ends: NDArray[np.int64],
    owners: NDArray[np.int64],
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
) -> None: ...
def paint_runs(
    mask: NDArray[np.uint8],
    *,
    runs: NDArray[np.int64],
    height: int,
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
) -> None: ...
def parse_runs(text: str) -> NDArray[np.int64]: ...

# --- names (core/names) ---

def build_name_table(
    names: NDArray[np.uint8], name_offsets: NDArray[np.uint64]
) -> tuple[NDArray[np.uint32], NDArray[np.int32]]: ...

class NameLookup:
    def __init__(
        self,
        names: NDArray[np.uint8],
        name_offsets: NDArray[np.uint64],
        starts: NDArray[np.uint32],
        order: NDArray[np.int32],
    ) -> None: ...
    def find(self, name: bytes, before: int = ...) -> int: ...
    def find_paths(
        self, blob: NDArray[np.uint8], offsets: NDArray[np.uint64], which: NDArray[np.int64]
    ) -> NDArray[np.int64]: ...

def leads_out(path: bytes) -> bool: ...
def take_names(
    fd: int,
    *,
    blob_at: int,
    blob_bytes: int,
    offsets_at: int,
    count: int,
    which: NDArray[np.int64],
    checks: BlockChecks | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]: ...

# --- checksums of files (core/common/block_checks.hpp) ---

CHECKED_BLOCK_BYTES: Final[int]

class BlockSums:
    def __init__(self) -> None: ...
    def add(self, bytes: NDArray[np.uint8]) -> None: ...
    def sums(self) -> NDArray[np.uint32]: ...

class BlockChecks:
    def __init__(self, sums: NDArray[np.uint32], *, begin: int, end: int) -> None: ...
    def check(self, fd: int, start: int, stop: int) -> None: ...
    def check_rows(self, fd: int, *, at: int, row_bytes: int, count: int, rows: NDArray[np.int64]) -> None: ...

# --- samples (core/samples) ---

def group_members(
    names: NDArray[np.uint8], name_offsets: NDArray[np.uint64], types: NDArray[np.uint8], last_dot: bool = False
) -> tuple[
    NDArray[np.uint32],
    NDArray[np.int32],
    NDArray[np.uint8],
    list[bytes],
    NDArray[np.uint8],
    NDArray[np.uint64],
    NDArray[np.int32],
    dict[str, int],
]: ...

class SampleFinder:
    def add(
        self,
        names: NDArray[np.uint8],
        name_offsets: NDArray[np.uint64],
        first: NDArray[np.uint32],
        member: NDArray[np.int32],
        extension: NDArray[np.uint8],
        last_dot: bool = False,
    ) -> None: ...
    def find(self, ids: NDArray[np.int64], ranks: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
    def keys(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]: ...

class JoinedInt64:
    def add(self, part: NDArray[np.int64]) -> None: ...
    def take(self, part: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int64]: ...

class JoinedUInt32:
    def add(self, part: NDArray[np.uint32]) -> None: ...
    def take(self, part: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.uint32]: ...

# --- tar (core/tar) ---

def scan_tar(
    path: bytes,
) -> tuple[
    NDArray[np.uint8],
    NDArray[np.uint64],
    NDArray[np.uint8],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint32],
    NDArray[np.uint8],
    NDArray[np.uint64],
    NDArray[np.int64],
    dict[str, int],
]: ...
def scan_remote_tar(
    name: str,
    size: int,
    read: Callable[[int, int], bytes],
    growth: Callable[[], tuple[int, int, int]],
) -> tuple[
    NDArray[np.uint8],
    NDArray[np.uint64],
    NDArray[np.uint8],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint32],
    NDArray[np.uint8],
    NDArray[np.uint64],
    NDArray[np.int64],
    dict[str, int],
]: ...
def tar_header_check(block: bytes) -> int: ...

# --- zip (core/zip) ---

def read_zip_directory(
    path: bytes,
) -> tuple[
    NDArray[np.uint8],
    NDArray[np.uint64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.int64],
    NDArray[np.uint32],
    NDArray[np.uint32],
    int,
]: ...

# --- single images, for tests and benchmarks ---

def transcode_jpeg(data: bytes, *, restart: int | None = None, limits: Limits = ...) -> bytes | None: ...
def encode_jpeg(
    pixels: NDArray[np.uint8], *, quality: int = 90, subsampling: str = "420", restart: bool = True
) -> bytes: ...
def exif_orientation(data: bytes, limits: Limits) -> int | None: ...
def probe_png(data: bytes) -> tuple[int, int, int, int, bool]: ...
def decode_png(
    data: bytes,
    layout: str,
    top: int = 0,
    bottom: int = -1,
    *,
    level: str = "best",
    max_pixels: int = ...,
    max_png_chunk_bytes: int = ...,
) -> NDArray[Any]: ...
def jpeg_planes(data: bytes, *, limits: Limits = ...) -> bytes: ...

# --- mixing of batches (core/augment/mixing.hpp) ---

def mix_images(images: NDArray[Any], pairs: NDArray[np.int32], level: str = "best") -> None: ...
def mix_to_floats(
    images: NDArray[np.uint8],
    pairs: NDArray[np.int32],
    *,
    out: NDArray[np.uint8],
    dtype: str,
    subtract: Sequence[float],
    divide: Sequence[float],
    level: str = "best",
) -> None: ...

# --- single images, in the calling thread ---

class ImageOptions:
    """What an image field becomes, the same for every batch."""

    def __init__(
        self,
        *,
        channels: int = 3,
        dtype: str = "uint8",
        planar: bool = False,
        subtract: list[float] = ...,
        divide: list[float] = ...,
        fill: list[int] = ...,
        filter: str = "triangle",
        dct_margin: float = 0.0,
        orient: bool = False,
        background: Sequence[int] | None = None,
        shrink_to: int = 0,
        mask: tuple[int, int, NDArray[np.int64]] | None = None,
        depth: tuple[str, float, float, float, float, tuple[float, float, float, float, bool] | None] | None = None,
        normals: bool | None = None,
        wide: tuple[list[float], list[float], list[float]] | None = None,
        name_hash: int = 0,
        view: NDArray[np.float64] | None = None,
        copies: int = 1,
        decoded_with: int = -1,
        scale: int = 1,
        augment: Augmentation | None = None,
    ) -> None: ...

class ImageDecoder:
    def __init__(self, program: NDArray[np.float64], options: ImageOptions, *, limits: Limits) -> None: ...
    def decode_file(self, path: bytes, key: int) -> NDArray[Any] | tuple[int, str]: ...
    def decode_bytes(self, data: Buffer, key: int) -> NDArray[Any] | tuple[int, str]: ...
    def decode_pixels(self, pixels: NDArray[np.uint8], key: int) -> NDArray[Any] | tuple[int, str]: ...

# --- batches (core/batch) ---

class Limits:
    """Upper bounds on what one image may cost. An image beyond one is a bad sample, named with the limit. Frozen.

    `max_pixels`  height x width
    `max_jpeg_scans`  scans of a progressive JPEG
    `max_png_chunk_bytes`  bytes of a PNG chunk other than image data
    `max_file_bytes`  bytes of the file
    `max_decode_bytes`  memory of decoders that hold a complete image, shared by all threads of a loader
    `formats`  formats that Pillow may decode, by its names; None: the usual ones
    `max_decode_s`  seconds of a decoder process, which decodes JPEG 2000 and formats beyond the usual ones
    """

    def __init__(
        self,
        *,
        max_pixels: int = 178_956_970,
        max_jpeg_scans: int = 100,
        max_png_chunk_bytes: int = 67_108_864,
        max_file_bytes: int = 1_073_741_824,
        max_decode_bytes: int = 2_147_483_648,
        formats: Sequence[str] | None = None,
        max_decode_s: float = 30.0,
    ) -> None: ...
    @property
    def max_pixels(self) -> int: ...
    @property
    def max_jpeg_scans(self) -> int: ...
    @property
    def max_png_chunk_bytes(self) -> int: ...
    @property
    def max_file_bytes(self) -> int: ...
    @property
    def max_decode_bytes(self) -> int: ...
    @property
    def formats(self) -> tuple[str, ...]: ...
    @property
    def max_decode_s(self) -> float: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Paths:
    def __init__(
        self, root: bytes, names: NDArray[np.uint8], offsets: NDArray[np.uint64], *, keep_open: bool, inside: bool
    ) -> None: ...
    def close(self) -> None: ...

class Ranges:
    """Where the bytes of a field lie, for each sample of a batch."""

    def __init__(
        self,
        paths: Paths | None = None,
        path_id: NDArray[np.int64] | None = None,
        offset: NDArray[np.int64] | None = None,
        length: NDArray[np.int64] | None = None,
        check: NDArray[np.uint32] | None = None,
        zipped: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]
        | None = None,
        held: tuple[list[Buffer], list[int], NDArray[np.int64]] | None = None,
        prefix: NDArray[np.uint8] | None = None,
    ) -> None: ...

class Job:
    def __init__(
        self,
        ids: NDArray[np.int64],
        passes: NDArray[np.uint32],
        *,
        key: int,
        dataset: int = 0,
        program: NDArray[np.float64],
        views: NDArray[np.float64] | None = None,
        draw_ids: NDArray[np.int64] | None = None,
        augment: Augmentation | None = None,
        keeps: NDArray[np.uint8] | None = None,
    ) -> None: ...
    def add_image(
        self,
        at: Ranges,
        options: ImageOptions,
        *,
        out: NDArray[np.uint8],
        height: int,
        width: int,
        memory: list[Any] | None = None,
        valid: NDArray[np.uint8] | None = None,
        cache: tuple[Store, int, str] | None = None,
    ) -> None: ...
    def add_raw(self, at: Ranges, *, cache: tuple[Store, int, str] | None = None) -> None: ...
    def probe_only(self) -> None: ...
    def wait(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def done(self) -> bool: ...
    @property
    def narrowed(self) -> int: ...
    @property
    def transparent(self) -> int: ...
    def failures(self) -> list[RowFailure]: ...
    def raw(self, field: int) -> list[bytes]: ...
    @property
    def views(self) -> NDArray[np.float64]: ...
    @property
    def sizes(self) -> NDArray[np.int32]: ...

class Engine:
    def __init__(
        self,
        threads: int,
        *,
        level: str = "best",
        limits: Limits = ...,
        retry_waits_s: list[float] = ...,
        most_threads: int = 0,
    ) -> None: ...
    def submit(self, job: Job) -> None: ...
    def take_memory(self, bytes: int) -> None: ...
    def give_memory_back(self, bytes: int) -> None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...
    @property
    def threads(self) -> int: ...
    def set_threads(self, threads: int) -> int: ...
    @property
    def idle_ns(self) -> int: ...
    def counters(self) -> dict[str, tuple[int, int, int]]: ...

class BlockPool:
    def __init__(self, *, most_idle: int, file: int = ...) -> None: ...
    def acquire(self, bytes: int) -> NDArray[np.uint8]: ...
    def offset(self, address: int) -> int: ...
    def set_most_idle(self, most_idle: int) -> None: ...
    def retire(self) -> None: ...
    def usage(self) -> tuple[int, int, int, int]: ...

# --- memory that processes share ---

def map_file(file: int, offset: int, bytes: int) -> NDArray[np.uint8]: ...
def fetch_add(counters: NDArray[np.int64], index: int, value: int) -> int: ...

# --- caches: core/cache/ ---

CACHE_VERSION: int
CACHE_FULL: int

def cache_bytes(entries: int, *, reuses: bool = False) -> int: ...
def make_cache(fd: int, *, entries: int, key: bytes, stamp: bytes, reuses: bool = False) -> None: ...
def cache_kind(fd: int, *, entries: int, key: bytes, stamp: bytes, reuses: bool = False) -> str: ...

class Store:
    def __init__(self, fd: int, *, entries: int, limit_bytes: int, reuses: bool = False) -> None: ...
    def get(self, index: int) -> bytes | None: ...
    def put(self, index: int, data: Buffer) -> bool: ...
    def get_many(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    def has_many(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]: ...
    def put_many(self, indices: NDArray[np.int64], data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> int: ...
    def evict(self, indices: NDArray[np.int64]) -> int: ...
    def taken(self, first: int, count: int) -> NDArray[np.uint32]: ...
    def resume(self) -> None: ...
    def recover(self) -> None: ...
    def counts(self) -> dict[str, int]: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def room_bytes(self) -> int: ...
    @property
    def stopped(self) -> int: ...
