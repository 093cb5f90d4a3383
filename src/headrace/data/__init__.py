"""Index folders, archives, manifests and in-memory samples as byte ranges.

`open` detects the kind of source and returns a `Dataset`, which reads single samples and is sliced by `select` and
`split`. Other packages import from here.

Used by all packages above it. Read `opening.py` (`hr.open`), `dataset.py` first.
"""

from __future__ import annotations

from headrace.data.archives.archive_columns import ArchiveColumn
from headrace.data.archives.archive_scans import ScanLog, ScanState
from headrace.data.archives.tar_index import MAX_LINKS, TAR, TarMember, TarMembers
from headrace.data.archives.zip_index import ZIP, ZipMember, ZipMembers
from headrace.data.archives.zip_reading import DamagedEntryError, ZipEntry, read_entry, refusal
from headrace.data.array_columns import ArrayColumn
from headrace.data.borrowed_bytes import borrow_bytes
from headrace.data.byte_columns import file_bytes
from headrace.data.class_names import label_column, parse_labels
from headrace.data.columns import (
    KEY,
    ByteColumn,
    BytesInMemory,
    BytesListColumn,
    Column,
    FileColumn,
    HeldColumn,
    KeyColumn,
    ListColumn,
    RangeColumn,
    TextColumn,
    ValueColumn,
    numbers_in_ranges,
)
from headrace.data.content_pins import ContentPins, pin_content
from headrace.data.dataset import Dataset
from headrace.data.dataset_display import contact_sheet, picture_address
from headrace.data.list_items import ITEM, ListItems, items_of_lists, unlisted
from headrace.data.location import ABSENT, ColumnFiles, HeldParts, native_paths, outside_root_text
from headrace.data.native_reading import read_members
from headrace.data.opening import Where, open
from headrace.data.pillow_images import (
    MOST_PIXEL_BYTES,
    SIDEWAYS,
    TooLargeError,
    apart_formats,
    open_picture,
    orientation_of,
    picture_orientation,
    picture_size,
    turned,
)
from headrace.data.remote.key_ranges import list_objects
from headrace.data.remote.listing import Stores
from headrace.data.remote.remote_file import ObjectPath, put_object
from headrace.data.sample_arrays import cached_array, file_versions, mapped_zeros, position_blocks, release_pages
from headrace.data.sizes import image_sizes, stated_columns
from headrace.data.sources.file_kind import refuse_compressed
from headrace.data.sources.index_building import (
    IndexedFile,
    IndexOutcome,
    UnindexedFile,
    build_indices,
    index_written,
    indexable_paths,
    merge_indices,
    merged_target,
)
from headrace.data.sources.pack_names import bare_place, free_place, member_places, pack_keys
from headrace.data.sources.pack_source import (
    COLUMNS,
    INDEX,
    PLAN,
    PackColumn,
    document_bytes,
    document_name,
    index_faults,
    parse_document,
    shard_name,
    values_faults,
    write_columns,
)
from headrace.data.storage.file_writing import (
    PARTIAL_SUFFIX,
    UnwritableError,
    finish_partial_file,
    partial_file,
    writing,
)
from headrace.data.storage.open_file import (
    FilePath,
    OpenFile,
    attempts_text,
    open_stream,
    read_member,
    read_path,
    with_retries,
)
from headrace.data.storage.paths import expand_pattern, resolve_paths
from headrace.data.storage.sidecar import FileIdentity, cache_folder, identify, sidecar_places
from headrace.data.storage.strings import StringColumn, Strings
from headrace.data.table import content_sample
