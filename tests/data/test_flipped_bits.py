"""One flipped bit in what is kept on disk: right content, what was kept made anew and said, or a named error."""

from __future__ import annotations

import random
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from index_checksums import put_together, taken_apart
from manifests import write_json_lines

import headrace as hr
from headrace.data import sizes
from headrace.data.manifest import manifest_table
from headrace.data.staging import sources_of, stage
from headrace.data.storage import safetensors, sidecar
from headrace.errors import HeadraceError
from headrace.fields.tokens import text_columns

MEMBERS = {"cat/1.jpg": b"one", "cat/1.cls": b"0", "dog/2.jpg": b"two!", "dog/2.cls": b"1", "3.jpg": b"three"}
FLIPS = 25
"""Of each kind, where not every bit is flipped."""
MOST = 50_000
ROWS = 9


@dataclass(frozen=True)
class KeptFile:
    """A file that Headrace keeps, and what a user gets by it."""

    place: Path
    use: Callable[[], object]


def samples_of(path: Path) -> list[dict[str, object]]:
    ds = hr.open(path)
    return [dict(ds[i]) for i in range(len(ds))]


def members_of(archive: hr.IndexedTar | hr.IndexedZip) -> dict[str, bytes]:
    with archive as opened:
        return {name: opened.read(name) for name in (member.name for member in opened.getmembers())}


def tar_samples(make_tar: Callable[..., Path], **_: object) -> KeptFile:
    path = make_tar("a.tar", MEMBERS)
    return KeptFile(Path(f"{path}.headrace"), lambda: samples_of(path))


def tar_members(make_tar: Callable[..., Path], **_: object) -> KeptFile:
    path = make_tar("a.tar", MEMBERS)
    return KeptFile(Path(f"{path}.headrace"), lambda: members_of(hr.IndexedTar(path)))


def zip_of(tmp_path: Path) -> Path:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in MEMBERS.items():
            archive.writestr(name, content)
    return path


def zip_samples(tmp_path: Path, **_: object) -> KeptFile:
    path = zip_of(tmp_path)
    return KeptFile(Path(f"{path}.headrace"), lambda: samples_of(path))


def zip_members(tmp_path: Path, **_: object) -> KeptFile:
    path = zip_of(tmp_path)
    return KeptFile(Path(f"{path}.headrace"), lambda: members_of(hr.IndexedZip(path)))


def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, text_bytes: int = 2, **_: object) -> KeptFile:
    monkeypatch.setattr(manifest_table, "_KEPT_FROM_BYTES", 0)
    columns = {
        "key": range(100, 100 + ROWS),
        "text": [f"{i}" * text_bytes for i in range(ROWS)],
        "label": ["a", "b", "c"] * 3,
        "number": [i / 7 for i in range(ROWS)],
        "boxes": [[i, i + 1] for i in range(ROWS)],
        "captions": [["x" * i, "y"] for i in range(ROWS)],
    }
    path = write_json_lines(tmp_path / "list.jsonl", columns)

    def use() -> object:
        ds = hr.open(path)
        return (
            repr([ds[i] for i in range(ROWS)]),
            list(ds.keys),
            ds.columns["label"].labels.take(np.arange(ROWS)).tolist(),
        )

    return KeptFile(Path(f"{path}.headrace"), use)


def lazy_manifest(monkeypatch: pytest.MonkeyPatch, **found: object) -> KeptFile:
    """As one of many rows, of which opening looks at nothing."""
    monkeypatch.setattr(sidecar, "_CHECKED_AT_ONCE_BYTES", 0)
    return manifest(monkeypatch=monkeypatch, text_bytes=6_000, **found)


def image_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **_: object) -> KeptFile:
    from measured_images import EXPECTED, open_folder

    monkeypatch.setattr(sizes, "_WORTH_KEEPING", 1)
    monkeypatch.setattr(sizes, "probe_sizes", lambda *_, **__: EXPECTED.astype(np.int32))
    dataset, column = open_folder(tmp_path)
    cache = str(tmp_path / "cache")
    sizes.image_sizes(dataset, column, cache=cache)
    (place,) = Path(cache).iterdir()
    return KeptFile(place, lambda: sizes.image_sizes(dataset, column, cache=cache).tolist())


def token_lengths(make_tar: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptFile:
    monkeypatch.setattr(text_columns, "_WORTH_CACHING", 1)
    cache = str(tmp_path / "cache")
    monkeypatch.setenv("HEADRACE_CACHE", cache)
    dataset = hr.open(make_tar("a.tar", {f"{i}.txt": b"word " * i for i in range(1, 9)}))

    def encode(texts: list[str]) -> list[list[int]]:
        return [[1] * len(text.split()) for text in texts]

    def use() -> object:
        field = hr.Text(encode, source="txt", max_length=50, version="1", pad_id=0)
        (text,) = text_columns.resolve_texts(dataset, {"field": field})
        return text.lengths().tolist()

    use()
    (place,) = Path(cache).iterdir()
    return KeptFile(place, use)


def stage_manifest(tmp_path: Path, **_: object) -> KeptFile:
    source, to = tmp_path / "source", tmp_path / "copies"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.bin").write_bytes(bytes([number]) * 50)

    def use() -> object:
        stage(sources_of([source]), to=to, threads=1)
        return {path.name: path.read_bytes() for path in (to / "source").iterdir()}

    return KeptFile(to / ".headrace-stage" / "manifest.json", use)


KINDS = [
    tar_samples, tar_members, zip_samples, zip_members, manifest, lazy_manifest, image_sizes, token_lengths,
    stage_manifest,
]  # fmt: skip


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kept(request: pytest.FixtureRequest, tmp_path, make_tar, monkeypatch) -> KeptFile:
    made: KeptFile = request.param(tmp_path=tmp_path, make_tar=make_tar, monkeypatch=monkeypatch)
    made.use()
    return made


def flipped(sound: bytes, bits: list[int]) -> Iterator[bytes]:
    for bit in bits:
        content = bytearray(sound)
        content[bit // 8] ^= 1 << bit % 8
        yield bytes(content)


def outcome(kept: KeptFile) -> object:
    """What the user gets, or the named error."""
    try:
        return kept.use()
    except HeadraceError as error:
        return error


def check_flips(kept: KeptFile, bits: list[int]) -> None:
    expected, sound = kept.use(), kept.place.read_bytes()
    errors = said = 0
    for content in flipped(sound, bits):
        kept.place.write_bytes(content)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            got = outcome(kept)
        if isinstance(got, HeadraceError):
            errors += 1
            assert re.search("damaged|checksum", str(got))
        else:
            assert got == expected
            assert kept.place.read_bytes() == sound, "it is not left as it is"
        assert all("got a damaged file" in str(each.message) for each in heard)
        said += len(heard)
        kept.place.write_bytes(sound)
    assert errors + said >= 0.9 * len(bits), "some flips alone make it another version's, which is no news"
    assert kept.use() == expected


@pytest.mark.one_in(6)
def test_some_bits(kept):
    size = 8 * kept.place.stat().st_size
    check_flips(kept, [*random.Random(0).sample(range(size), FLIPS), 0, size - 1])


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_bit(kept):
    """But for the one of many blocks, of which there are too many."""
    bits = range(8 * kept.place.stat().st_size)
    check_flips(kept, list(bits) if len(bits) < MOST else random.Random(2).sample(bits, MOST))


@pytest.mark.parametrize("count", [1_000, pytest.param(None, marks=[pytest.mark.long])])
def test_no_bit_passes(make_tar, count):
    """Of a small tar's, by the reader alone."""
    kept = tar_samples(make_tar)
    kept.use()
    sound = kept.place.read_bytes()
    bits = range(8 * len(sound))
    for content in flipped(sound, list(bits if count is None else random.Random(1).sample(bits, count))):
        kept.place.write_bytes(content)
        with pytest.raises(safetensors.InvalidFileError):
            safetensors.read_arrays(str(kept.place))[0].check_all()


def test_the_checksums_are_crc_32_of_16_kib(tmp_path, make_tar):
    """As `zlib` has it, over several blocks and arrays that do not end with one."""
    path = make_tar("a.tar", {f"{number:05}.jpg": b"x" for number in range(2_000)})
    hr.open(path)
    kept = Path(f"{path}.headrace")
    header, body = taken_apart(kept.read_bytes())
    assert header["checksums"]["shape"][0] >= 6
    assert put_together(header, body) == kept.read_bytes()


def test_a_damaged_list_of_many_rows_is_removed_where_it_is_read(tmp_path, monkeypatch):
    """The error says so, and the next opening builds it anew without a word."""
    kept = lazy_manifest(monkeypatch=monkeypatch, tmp_path=tmp_path)
    expected, sound = kept.use(), kept.place.read_bytes()
    at = sound.index(b"4" * 6_000) + 100
    kept.place.write_bytes(sound[:at] + b"5" + sound[at + 1 :])
    with pytest.raises(HeadraceError, match=r"list\.jsonl\.headrace: the \d+ bytes from byte \d+ on do not fit their "
                       r"checksum: it is damaged\. It was removed: open the dataset again"):  # fmt: skip
        kept.use()
    assert not kept.place.exists()
    assert kept.use() == expected
    assert kept.place.read_bytes() == sound


def test_what_another_has_built_meanwhile_is_not_removed(tmp_path, monkeypatch):
    kept = lazy_manifest(monkeypatch=monkeypatch, tmp_path=tmp_path)
    kept.use()
    sound = kept.place.read_bytes()
    ds = hr.open(tmp_path / "list.jsonl")
    with kept.place.open("r+b") as file:
        file.seek(sound.index(b"4" * 6_000) + 100)
        file.write(b"5")
    new = kept.place.with_name("new")
    new.write_bytes(sound)
    new.replace(kept.place)
    with pytest.raises(HeadraceError, match=r"it is damaged\. Remove it, and open again"):
        _ = ds[4]
    assert kept.place.read_bytes() == sound
