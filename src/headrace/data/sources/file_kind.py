"""Detect the kind of a file by its first bytes, or by its suffix if bytes are ambiguous."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.data.storage.open_file import FilePath
from headrace.data.storage.paths import suggest_path
from headrace.errors import DatasetError, NotFoundError

COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
}


def refuse_compressed(path: str) -> None:
    """Raise DatasetError for a compressed file at `path`, which has no random access."""
    name = compression_of(path)
    if name is not None:
        raise DatasetError(
            f"{path}: expected a plain tar, got one compressed with {name}, whose members cannot be read at "
            f"random. Decompress it: {decompress_command(path, name)}"
        )


def compression_of(path: str) -> str | None:
    """Return the compression of the file at `path`: gzip, bzip2, xz, zstd or lz4; None: another, or unreadable."""
    try:
        with open(path, "rb") as file:
            start = file.read(6)
    except OSError:
        return None  # the next reader reports the cause
    return next((name for magic, (name, _) in COMPRESSED.items() if start.startswith(magic)), None)


def decompress_command(path: str, name: str) -> str:
    """Return the shell command that decompresses the file at `path`."""
    command = next(command for known, command in COMPRESSED.values() if known == name)
    return f"{command} -k {os.path.basename(path)}"


IMAGE_EXTENSIONS = (
    "jpg", "jpeg", "jpe", "jfif", "png", "webp", "avif", "bmp", "gif", "tif", "tiff",
    "ppm", "pgm", "pbm", "pnm", "y4m", "jp2", "j2k", "heic", "heif",
)  # fmt: skip
"""Image extensions in lower case, in lookup order for a tar sample's `image`; Pillow opens all but y4m, and
heic and heif by a plugin."""

_IMAGE_SUFFIXES = tuple(f".{extension}".encode() for extension in IMAGE_EXTENSIONS)


def is_image_name(name: bytes) -> bool:
    return name.lower().endswith(_IMAGE_SUFFIXES)


Kind: TypeAlias = Literal[
    "tar", "zip", "parquet", "arrow file", "arrow stream", "manifest", "json", "arrays", "image", "compressed", "other"
]

_HEAD_BYTES = 1024
_BLOCK = 512
_TAR_MAGIC_AT, _TAR_CHECKSUM = 257, slice(148, 156)

ROW_KINDS: tuple[Kind, ...] = ("manifest", "parquet", "arrow file", "arrow stream")
"""Kinds of files with one sample per row."""

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".odgt")
"""Suffixes of text manifests, since their bytes do not indicate the field separator."""

_IMAGES = {
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"GIF87a": "a GIF image",
    b"GIF89a": "a GIF image",
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"II+\0": "a TIFF image",
    b"MM\0+": "a TIFF image",
    b"\0\0\0\x0cjP  \r\n\x87\n": "a JPEG 2000 image",
    b"\xff\x4f\xff\x51": "a JPEG 2000 image",
    b"v/1\x01": "an EXR image",
    b"YUV4MPEG2 ": "a YUV4MPEG2 image",
    b"\x93NUMPY": "an array of numpy's (.npy)",
}
"""Files that an image field decodes."""

_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "an AVIF image"),
    **dict.fromkeys((b"heic", b"heix"), "a HEIC image"),
    b"mif1": "a HEIF image",
}
_RIFF = {b"WEBP": "a WebP image"}

_OTHERS = {
    b"SQLite format 3\0": ("an SQLite database", "Write the rows to a .parquet or .csv"),
    b"%PDF-": ("a PDF", "Name images"),
    b"Obj\x01": ("an Avro file", "Write the rows to a .parquet"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "Extract it, and open the folder"),
    b"Rar!\x1a\x07": ("a RAR archive", "Extract it, and open the folder"),
    # In either byte order.
    **dict.fromkeys(
        (b"\xce\xd7\x23\x0a", b"\n\x23\xd7\xce"), ("a RecordIO file of MXNet's", "Write its images to a tar")
    ),
    # Protocols 2 to 5; earlier protocols begin like text.
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        ("a pickle", "Nothing is unpickled: write a .parquet, or give the lists that it holds"),
    ),
}
_MEDIA = (
    "Video and audio are not decoded: write frames as images, or train on the files with headrace.ThreadDataLoader "
    "and torchcodec"
)
_OTHERS |= {
    b"\x1a\x45\xdf\xa3": ("a Matroska or WebM video", _MEDIA),
    b"FLV\x01": ("a Flash video", _MEDIA),
    b"\0\0\x01\xba": ("an MPEG video", _MEDIA),
    b"\0\0\x01\xb3": ("an MPEG video", _MEDIA),
    b"fLaC": ("a FLAC audio file", _MEDIA),
    b"OggS": ("an Ogg audio or video file", _MEDIA),
    b"ID3": ("an MP3 audio file", _MEDIA),
}
_MEDIA_SUFFIXES = frozenset((
    ".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv", ".flv", ".3gp", ".ogv",
    ".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac",
))  # fmt: skip
_RIFF_MEDIA = {b"AVI ": "an AVI video", b"WAVE": "a WAV audio file"}
_NAMED: dict[str, Kind] = {
    ".tar": "tar", ".zip": "zip", ".parquet": "parquet", ".json": "json", ".h5": "arrays", ".hdf5": "arrays",
}  # fmt: skip
_ARROW_ADVICE = "Open the folder that save_to_disk wrote, or write a .parquet"
_OF_IMAGES = re.compile(rb"^\x93NUMPY.{4,6}\{[^}]*'shape': \((\d+, ){3}\d+\)", re.DOTALL)
"""Header of an array [N, H, W, C] or [N, C, H, W]: an `.npy` of fewer dimensions is an image."""
_LMDB_AT, _LMDB = 16, b"\xde\xc0\xef\xbe"


@dataclass(frozen=True)
class FileKind:
    kind: Kind
    words: str
    """Description with an article: "a JPEG image"."""
    advice: str = ""
    """Advice if the file cannot be opened."""


_BY_MAGIC = {
    **dict.fromkeys((b"PK\x03\x04", b"PK\x05\x06"), FileKind("zip", "a zip")),
    b"\x89HDF\r\n\x1a\n": FileKind("arrays", "an HDF5 file"),
    b"PAR1": FileKind("parquet", "a parquet file"),
    b"ARROW1\0\0": FileKind("arrow file", "an Arrow file", _ARROW_ADVICE),
    **{magic: FileKind("image", words) for magic, words in _IMAGES.items()},
    **{
        magic: FileKind("compressed", f"a file compressed with {name}", f"Decompress it: {command} -k")
        for magic, (name, command) in COMPRESSED.items()
    },
    **{magic: FileKind("other", words, advice) for magic, (words, advice) in _OTHERS.items()},
}


def kind_of(path: FilePath) -> FileKind:
    """Return the kind of the file at the absolute `path`.

    Raises NotFoundError for a missing file, DatasetError for a folder or a special file, and ReadError for an object.
    """
    if not isinstance(path, str):
        return _kind(os.path.splitext(path.name)[1].lower(), path.open().read(0, _HEAD_BYTES))
    if os.path.isdir(path):
        raise DatasetError(
            f"{path}: expected an archive, got a folder. Open a folder on its own, or name only archives"
        )
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected a folder, an archive or a manifest, got nothing. {suggest_path(path)}")
    if not os.path.isfile(path):
        raise DatasetError(f"{path}: expected a folder, an archive or a manifest, got a special file. Check the path")
    suffix = os.path.splitext(path)[1].lower()
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        head = b""  # the reader that opens it reports the cause
    return _kind(suffix, head)


def _kind(suffix: str, head: bytes) -> FileKind:
    """Return the kind of a file by its lower-case suffix and its first bytes."""
    if suffix in TEXT_SUFFIXES and (is_text(head) or _by_bytes(head) is None):
        return FileKind("manifest", f"a {suffix} manifest")
    if suffix == ".npz" and head.startswith(b"PK"):
        return FileKind("arrays", "an .npz")
    if suffix == ".npy" and _OF_IMAGES.search(head):
        return FileKind("arrays", "an .npy of images")
    return _by_bytes(head) or _by_ending(suffix, head)


def media_advice(suffixes: Iterable[str]) -> str | None:
    """Return the advice for video or audio files if any of the lower-case suffixes is one of theirs."""
    return _MEDIA if _MEDIA_SUFFIXES.intersection(suffixes) else None


def is_image(path: str) -> bool:
    """Return True if the file at `path` is an image, by its first bytes."""
    return os.path.isfile(path) and kind_of(path).kind == "image"


def is_text(head: bytes) -> bool:
    """Return True if the first bytes of a file are UTF-8 without control characters, except some in text."""
    if any(byte < 32 and byte not in b"\t\n\r\x0c\x1b\x1f" for byte in head):
        return False
    try:
        # The head may end inside a character.
        head[:-3].decode() if len(head) == _HEAD_BYTES else head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and len(head) == _HEAD_BYTES
    return True


def _by_bytes(head: bytes) -> FileKind | None:
    """Return the kind that the first bytes indicate, or None."""
    if _is_tar(head):
        return FileKind("tar", "a tar")
    if head.startswith(b"\xff\xff\xff\xff") and head[6:8] == b"\0\0":
        return FileKind("arrow stream", "a stream of Arrow's", _ARROW_ADVICE)
    for magic, found in _BY_MAGIC.items():
        if head.startswith(magic):
            return found
    image = None
    if head.startswith(b"RIFF"):
        image = _RIFF.get(head[8:12])
        if head[8:12] in _RIFF_MEDIA:
            return FileKind("other", _RIFF_MEDIA[head[8:12]], _MEDIA)
    elif head[4:8] == b"ftyp":
        image = _BRANDS.get(head[8:12])
        if image is None:
            return FileKind("other", "an MP4 or QuickTime video or audio file", _MEDIA)
    elif head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        image = "a BMP image"
    elif head[:1] == b"P" and head[1:2] in b"1234567f" and head[2:3].isspace():
        image = "a PNM image"
    if image is not None:
        return FileKind("image", image)
    if head[_LMDB_AT : _LMDB_AT + len(_LMDB)] == _LMDB:
        return FileKind("other", "an LMDB database", "Read it in your own Dataset, with headrace.ThreadDataLoader")
    if is_text(head) and head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return FileKind("json", "JSON")
    return None


def _by_ending(suffix: str, head: bytes) -> FileKind:
    """Return the kind that the suffix indicates; opening the file reports any problem."""
    if is_image_name(suffix.encode()):
        return FileKind("image", f"a {suffix} file")  # a damaged image is a bad sample, not another kind of dataset
    if suffix in _NAMED:
        return FileKind(_NAMED[suffix], f"a {suffix} file")
    if len(head) == _HEAD_BYTES and not any(head):
        return FileKind("tar", "an empty tar")
    if not head:
        return FileKind("other", "an empty file", "Check the path")
    if is_text(head):
        endings = ", ".join(TEXT_SUFFIXES)
        return FileKind("other", "a text", f"Give it an ending that says how fields are separated: {endings}")
    return FileKind("other", f"bytes that begin with {head[:8]!r}", "Check the path")


def _is_tar(head: bytes) -> bool:
    """Return True for the header of a tar: POSIX or GNU magic, or (long ago) a valid checksum."""
    if len(head) < _BLOCK:
        return False
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return True
    block = head[:_BLOCK]
    blank = block[: _TAR_CHECKSUM.start] + b" " * 8 + block[_TAR_CHECKSUM.stop :]
    try:
        return int(block[_TAR_CHECKSUM].strip(b" \0"), 8) == sum(blank)
    except ValueError:
        return False
