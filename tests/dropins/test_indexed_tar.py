"""`IndexedTar` against `tarfile`: what it finds and reads, in how many processes, and what it says of a changed tar."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from archive_workers import READS, WORKERS, ArchivesDataset, content_of, in_processes, read_at_random
from archives import NAMES, add_file, add_link, write_tar, write_zip
from PIL import Image
from processes import in_fork, run_python

from headrace.data import open as open_dataset
from headrace.data.archives import tar_index
from headrace.data.storage import safetensors
from headrace.data.storage.open_file import OpenFile
from headrace.dropins.indexed_tar import IndexedTar
from headrace.dropins.indexed_zip import IndexedZip
from headrace.dropins.shared_sequence import shared_list
from headrace.errors import (
    ChangedError,
    DatasetError,
    HeadraceError,
    MemberError,
    MissingMemberError,
    NotFoundError,
    UnsupportedMemberError,
    UsageError,
)

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
ODD_NAMES = ["n" * 100, "d" * 80 + "/" + "f" * 90, "no_extension", ".hidden", "grüße/写真.jpg", "../up", "/absolute"]
LONG_NAMES = ["deep/" * 60 + "x.jpg"]


@pytest.fixture(autouse=True)
def spare_the_users_cache(own_cache) -> None:
    """No test writes into the user's cache folder."""


@pytest.fixture(scope="module")
def frames(tmp_path_factory) -> Path:
    """300 members with their index beside them; tests that change it take a copy."""
    path = write_tar(tmp_path_factory.mktemp("frames") / "frames.tar")
    IndexedTar(path).close()
    return path


@pytest.fixture
def own_frames(frames, tmp_path) -> Path:
    return Path(shutil.copy(frames, tmp_path))


def same_as_tarfile(path: Path) -> None:
    """Every member, by name and as it comes, and every attribute that both have."""
    with tarfile.open(path, errors="surrogateescape") as reference, IndexedTar(path) as tar:
        assert tar.getnames() == reference.getnames()
        assert len(tar) == len(reference.getmembers()) == len(tar.getmembers())
        for own, theirs in zip(tar, reference, strict=True):
            for name in ("name", "path", "type", "linkname", "linkpath", "offset_data"):
                assert getattr(own, name) == getattr(theirs, name), name
            for question in ["isfile", "isreg", "isdir", "issym", "islnk", "ischr", "isblk", "isfifo", "isdev"]:
                assert getattr(own, question)() == getattr(theirs, question)(), question
            if theirs.isreg():
                assert own.size == theirs.size
            assert tar.getmember(own.name).offset_data == reference.getmember(own.name).offset_data
            same_bytes(tar, own, reference, theirs)


def same_bytes(tar, own, reference, theirs) -> None:
    file = reference.extractfile(theirs)
    if file is None:
        assert tar.extractfile(own) is None
    else:
        content = file.read()
        assert tar.read(own) == content
        assert tar.extractfile(own).read() == content


# --- against tarfile ---


@pytest.mark.parametrize("format", FORMATS)
def test_finds_and_reads_what_tarfile_does(tmp_path, format):
    names = NAMES[:30] + ODD_NAMES + (LONG_NAMES if format != tarfile.USTAR_FORMAT else [])
    same_as_tarfile(write_tar(tmp_path / "a.tar", names, format))


@pytest.mark.parametrize("format", FORMATS)
def test_folders_links_and_devices(tmp_path, format):
    with tarfile.open(tmp_path / "a.tar", "w", format=format) as tar:
        add_link(tar, "images", "", tarfile.DIRTYPE)
        add_file(tar, "images/a.jpg", b"old")
        add_link(tar, "images/hard", "images/a.jpg", tarfile.LNKTYPE)
        add_file(tar, "images/a.jpg", b"new")
        add_link(tar, "images/soft", "a.jpg")
        add_link(tar, "deep/er", "../images/./soft")
        add_link(tar, "null", "", tarfile.CHRTYPE)
        add_link(tar, "pipe", "", tarfile.FIFOTYPE)
    same_as_tarfile(tmp_path / "a.tar")
    with IndexedTar(tmp_path / "a.tar") as tar:
        assert tar.read("images/a.jpg") == tar.read("images/soft") == tar.read("deep/er") == b"new"
        assert tar.read("images/hard") == b"old"  # what it was linked to when it was packed
        assert tar.getmember("images/").isdir()
        with pytest.raises(MemberError, match=r"a\.tar: expected a file, got a folder: member 'images'"):
            tar.read("images")
        with pytest.raises(MemberError, match="expected a file, got a device: member 'null'"):
            tar.read("null")


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_links_with_long_targets(tmp_path, format):
    with tarfile.open(tmp_path / "a.tar", "w", format=format) as tar:
        add_file(tar, LONG_NAMES[0], b"far away")
        add_link(tar, "near", LONG_NAMES[0])
    same_as_tarfile(tmp_path / "a.tar")


def test_links_that_lead_nowhere_or_in_a_circle(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_link(tar, "nowhere", "gone.jpg")
        add_link(tar, "ping", "pong")
        add_link(tar, "pong", "ping")
        add_link(tar, "self", "self", tarfile.LNKTYPE)
    with IndexedTar(tmp_path / "a.tar") as tar:
        with pytest.raises(KeyError, match=r"linkname 'gone\.jpg' of member 'nowhere' not found in the tar"):
            tar.extractfile("nowhere")
        with pytest.raises(MemberError, match="member 'ping' is a link that leads in a circle"):
            tar.read("ping")
        with pytest.raises(MissingMemberError, match="linkname 'self' of member 'self' not found"):
            tar.read("self")


def test_sparse_members_are_refused(tmp_path):
    sparse = bytearray(tarfile.TarInfo("holes.bin").tobuf(tarfile.GNU_FORMAT))
    sparse[156:157] = tarfile.GNUTYPE_SPARSE
    sparse[148:156] = b" " * 8
    sparse[148:156] = b"%06o\0 " % sum(sparse)
    (tmp_path / "a.tar").write_bytes(bytes(sparse) + bytes(1024))
    with IndexedTar(tmp_path / "a.tar") as tar:
        assert tar.getmember("holes.bin").issparse()
        with pytest.raises(UnsupportedMemberError, match=r"'holes\.bin' is a sparse file.*without --sparse"):
            tar.read("holes.bin")


def test_more_extensions_than_samples_may_have(tmp_path):
    path = write_tar(tmp_path / "a.tar", [f"frame.{i:04d}.png" for i in range(300)])
    with IndexedTar(path) as tar:
        assert tar.read("frame.0299.png") == content_of("frame.0299.png")
    with pytest.raises(DatasetError, match=r"max_extensions = 256 .* rename members so that their stems"):
        open_dataset(path)


# --- names ---


def test_names_with_and_without_dot_slash(tmp_path):
    path = write_tar(tmp_path / "a.tar", ["./a", "b", "./c", "c"])
    with IndexedTar(path) as tar:
        assert [name in tar for name in ("a", "./a", "././a", "b", "./b", "./", ".", "")] == [True] * 5 + [False] * 3
        assert tar.read("a") == tar.read("./a") == content_of("./a")
        assert (tar.read("c"), tar.read("./c")) == (content_of("c"), content_of("./c"))
        assert tar.getnames() == ["./a", "b", "./c", "c"]


def test_missing_names_are_key_errors_with_a_hint(frames):
    with IndexedTar(frames) as tar:
        for name, hint in {
            "deep/frame_0001.png": r"among 300 members, of which the first is 'scene0/frame_0000'",
            "frame_0000": r"Did you mean 'scene0/frame_0000'\?",
            "/scene0/frame_0000": r"Did you mean 'scene0/frame_0000'\?",
            "frames/scene0/frame_0000": r"Did you mean 'scene0/frame_0000'\?",
            "scene1/deep/frame_0001.PNG": r"Did you mean 'scene1/deep/frame_0001\.png'\?",
            "\ud800": "among 300 members",
        }.items():
            with pytest.raises(KeyError, match=hint) as caught:
                tar.getmember(name)
            assert str(caught.value).startswith(f"{frames}: filename {name!r} not found")
            assert isinstance(caught.value, HeadraceError)
            assert name not in tar
        copied = pickle.loads(pickle.dumps(caught.value))
        assert str(copied) == str(caught.value)


def test_names_that_are_not_names(frames, tmp_path):
    with IndexedTar(frames) as tar:
        with tarfile.open(frames) as reference, pytest.raises(UsageError, match="expected a name or a member of this"):
            tar.read(reference.getmembers()[0])
        with pytest.raises(UsageError, match=r"expected a member's name, got .*\. Pass member\.name"):
            _ = Path(NAMES[0]) in tar
        with (
            IndexedTar(write_tar(tmp_path / "other.tar", ["x"])) as other,
            pytest.raises(UsageError, match="of this arch"),
        ):
            tar.read(other.getmember("x"))


# --- as a file ---


def test_members_are_files_with_positions_of_their_own(frames):
    name = max(NAMES, key=lambda name: len(content_of(name)))
    content = content_of(name)
    with IndexedTar(frames) as tar, tar.extractfile(name) as first, tar.extractfile(name) as second:
        assert first.seekable()
        assert not first.writable()
        assert first.read(5) == content[:5]
        assert second.read(3) == content[:3]
        assert (first.tell(), second.tell()) == (5, 3)
        assert first.seek(-10, io.SEEK_END) == len(content) - 10
        assert first.read(100) == content[-10:]
        assert first.read(1) == b""
        assert first.seek(len(content) + 5) == len(content) + 5
        assert first.read() == b""
        assert second.seek(2, io.SEEK_CUR) == 5
        buffer = bytearray(7)
        assert second.readinto(buffer) == 7
        assert buffer == content[5:12]
        with pytest.raises(ValueError, match="expected a position of 0 or more, got -1"):
            second.seek(-1)


def test_pillow_and_tarfile_open_members(tmp_path):
    image, inner = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (20, 10), "red").save(image, "PNG")
    with tarfile.open(fileobj=inner, mode="w") as tar:
        add_file(tar, "inner", b"in")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_file(tar, "a.png", image.getvalue())
        add_file(tar, "b.tar", inner.getvalue())
    with IndexedTar(tmp_path / "a.tar") as tar:
        assert Image.open(tar.extractfile("a.png")).getpixel((1, 1)) == (255, 0, 0)
        with tarfile.open(fileobj=tar.extractfile(tar.getmember("b.tar"))) as nested:
            assert nested.extractfile("inner").read() == b"in"


# --- many readers ---


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_eight_processes_read_at_random_from_a_tar_and_a_zip(frames, tmp_path, method):
    with IndexedTar(frames) as tar, IndexedZip(write_zip(tmp_path / "frames.zip")) as archive:
        tar.read(NAMES[0])
        assert in_processes(method, read_at_random, [tar, archive], NAMES, count=WORKERS) == [READS] * WORKERS


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
@pytest.mark.long
def test_data_loader_workers_read_from_all_of_them(frames, tmp_path, method):
    from torch.utils.data import DataLoader

    with IndexedTar(frames) as tar, IndexedZip(write_zip(tmp_path / "frames.zip")) as archive:
        dataset = ArchivesDataset([tar, archive], shared_list(NAMES))
        loader = DataLoader(dataset, batch_size=50, num_workers=2, collate_fn=list, multiprocessing_context=method)
        assert [content for batch in loader for content in batch] == [content_of(name) for name in NAMES]


def take_turn(reader) -> None:
    """Runs what is to happen meanwhile, once."""
    meanwhile, reader.meanwhile = reader.meanwhile, None
    if meanwhile is not None:
        meanwhile()


def test_forked_workers_do_not_move_each_other(frames, monkeypatch):
    class Turns:
        meanwhile: Callable[[], object] | None = None

    def read(self: OpenFile, offset: int, length: int) -> bytes:
        take_turn(Turns)
        return at_once(self, offset, length)

    at_once = OpenFile.read
    with IndexedTar(frames) as tar:
        monkeypatch.setattr(OpenFile, "read", read)
        for use in (lambda name: tar.read(name), lambda name: tar.extractfile(name).read()):
            said = []
            Turns.meanwhile = lambda use=use, said=said: said.append(in_fork(lambda: use(NAMES[50]))())
            assert use(NAMES[7]) == content_of(NAMES[7])
            assert said == [content_of(NAMES[50])]


def test_threads_share_one_descriptor(frames):
    before = len(os.listdir("/proc/self/fd"))
    tar = IndexedTar(frames)
    opened = len(os.listdir("/proc/self/fd"))
    right: list[int] = []
    threads = [
        threading.Thread(target=lambda seed=seed: right.append(read_at_random(seed, [tar], NAMES))) for seed in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [READS] * 8
    assert len(os.listdir("/proc/self/fd")) == opened
    assert opened - before == 2  # the tar, and what keeps the index mapped
    tar.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pickle_is_small_and_opens_on_its_first_use(frames):
    tar = IndexedTar(frames)
    packed = pickle.dumps(tar)
    assert len(packed) < 500
    before = len(os.listdir("/proc/self/fd"))
    copied = pickle.loads(packed)
    assert len(os.listdir("/proc/self/fd")) == before
    assert repr(copied) == f"IndexedTar({str(frames)!r}, not open in this process)"
    assert copied.read(NAMES[3]) == content_of(NAMES[3])
    assert repr(copied) == repr(tar) == f"IndexedTar({str(frames)!r}, 300 members)"
    assert copied.name == str(frames)


def test_closing_ends_use_and_leaves_open_members_be(frames):
    tar = IndexedTar(frames)
    file = tar.extractfile(NAMES[5])
    tar.close()
    tar.close()
    assert file.read() == content_of(NAMES[5])
    for use in (lambda: tar.read(NAMES[0]), lambda: len(tar), lambda: list(tar), tar.getnames, lambda: "a" in tar):
        with pytest.raises(UsageError, match=r"frames\.tar is closed\. Open it again, or close it later"):
            use()
    with pytest.raises(UsageError, match="is closed"):
        pickle.loads(pickle.dumps(tar)).read(NAMES[0])
    assert repr(tar).endswith("closed)")


# --- a tar that changes ---


def test_a_tar_cut_short_under_its_reader(own_frames):
    with IndexedTar(own_frames) as tar:
        first, last = NAMES[0], NAMES[-1]
        file = tar.extractfile(last)
        os.truncate(own_frames, tar.getmember(last).offset_data + 3)
        with pytest.raises(ChangedError, match=r"frames\.tar at byte \d+: expected \d+ bytes, got 3: .* shorter"):
            tar.read(last)
        with pytest.raises(ChangedError, match="become shorter"):
            file.read()
        assert tar.read(first) == content_of(first)


def test_a_tar_written_over_under_its_reader(own_frames):
    with IndexedTar(own_frames) as tar:
        file = tar.extractfile(NAMES[9])
        with tarfile.open(own_frames, "w") as other:  # in place: the same file with other content
            for name in NAMES:
                add_file(other, f"x/{name}", content_of(name))
        for read in (lambda: tar.read(NAMES[9]), file.read):
            with pytest.raises(
                ChangedError, match=r"the tar header there is not the one that was indexed: the file has"
            ):
                read()
    with IndexedTar(own_frames) as tar:
        assert tar.read(f"x/{NAMES[9]}") == content_of(NAMES[9])


def test_a_tar_replaced_by_name_goes_on_as_it_was_opened(own_frames, tmp_path):
    with IndexedTar(own_frames) as tar:
        packed = pickle.dumps(tar)
        os.replace(write_tar(tmp_path / "new.tar", ["other"]), own_frames)
        assert tar.read(NAMES[1]) == content_of(NAMES[1])
        with pytest.raises(ChangedError, match="is not the file that was opened and then passed to this process"):
            pickle.loads(packed).read(NAMES[1])


def test_a_tar_that_is_appended_to(own_frames):
    with IndexedTar(own_frames) as tar:
        with tarfile.open(own_frames, "a") as longer:
            add_file(longer, "more", b"more")
        assert all(tar.read(name) == content_of(name) for name in NAMES[::20])
        assert "more" not in tar
    with IndexedTar(own_frames) as tar:
        assert tar.read("more") == b"more"


def test_a_tar_replaced_while_it_is_indexed(own_frames, monkeypatch, tmp_path):
    def build(path: str) -> tuple[safetensors.Arrays, str]:
        built = tar_sidecar_build(path)
        os.replace(write_tar(tmp_path / "new.tar", ["other"]), own_frames)
        return built

    tar_sidecar_build = tar_index.build_tar_index
    monkeypatch.setattr(tar_index, "build_tar_index", build)
    with pytest.raises(ChangedError, match="it was replaced while it was indexed"):
        IndexedTar(own_frames)
    assert [entry.name for entry in own_frames.parent.iterdir()] == ["frames.tar"]


# --- the index ---


@pytest.fixture
def scans(monkeypatch) -> list[str]:
    """Paths scanned, in order."""
    seen: list[str] = []
    build = tar_index.build_tar_index
    monkeypatch.setattr(tar_index, "build_tar_index", lambda path: seen.append(path) or build(path))
    return seen


@pytest.mark.filterwarnings("ignore:.*expected the index of:UserWarning")  # which says that it is built again
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("members.offset", lambda values: values + 2**62),
        ("members.offset", lambda values: values * 0),
        ("members.size", lambda values: -values - 1),
        ("names.order", lambda values: values + 1),
        ("names.order", lambda values: values - 1),
        ("names.starts", lambda values: values[::-1]),
        ("names.starts", lambda values: values[:-1]),
        ("names.offsets", lambda values: values[::-1]),
        ("members.check", lambda values: values[:-1]),
        ("links.of", lambda values: np.array([900], np.int64)),
    ],
)
def test_a_damaged_index_is_built_again(own_frames, scans, name, change):
    IndexedTar(own_frames).close()
    kept = f"{own_frames}.headrace"
    arrays, metadata = safetensors.read_arrays(kept)
    arrays = {key: values.copy() for key, values in arrays.items()}
    arrays[name] = np.ascontiguousarray(change(arrays[name]))
    with open(kept, "wb") as file:
        safetensors.write_arrays(file, arrays, metadata)
    with IndexedTar(own_frames) as tar:
        assert all(tar.read(name) == content_of(name) for name in NAMES[::20])
    assert len(scans) == 2


def test_a_read_only_folder(frames, scans, own_cache):
    """And workers spawned from there find the index in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        path = shutil.copy(frames, folder)
        os.mkdir(f"{path}.headrace.partial")  # which nobody, root included, may open for writing
        with IndexedTar(path) as tar:
            assert in_processes("fork", read_at_random, [pickle.loads(pickle.dumps(tar))], NAMES) == [READS]
        assert len(scans) == 1
        assert [entry.name.startswith("frames.tar.") for entry in own_cache.iterdir()] == [True]


def test_a_cache_folder_of_choice(own_frames, tmp_path):
    IndexedTar(own_frames, cache=tmp_path / "mine").close()
    assert len(list((tmp_path / "mine").iterdir())) == 1
    assert not Path(f"{own_frames}.headrace").exists()


# --- what is no tar ---


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(NotFoundError, match=r"none\.tar: expected an archive, got nothing"):
        IndexedTar(tmp_path / "none.tar")
    with pytest.raises(DatasetError, match="expected an archive, got a folder"):
        IndexedTar(tmp_path)
    with pytest.raises(UsageError, match="expected a path, got 3"):
        IndexedTar(3)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(b"x" * 9000))
    with pytest.raises(DatasetError, match=r"compressed with gzip.*gunzip -k a\.tar\.gz"):
        IndexedTar(tmp_path / "a.tar.gz")
    (tmp_path / "a.tar").write_bytes(b"just a text\n" * 100)
    with pytest.raises(DatasetError, match=r"(?s)a\.tar: at byte 0: expected a tar header.*Check it with `tar -tf`"):
        IndexedTar(tmp_path / "a.tar")


def test_an_empty_tar(tmp_path):
    with IndexedTar(write_tar(tmp_path / "a.tar", [])) as tar:
        assert (len(tar), list(tar), tar.getnames()) == (0, [], [])
        with pytest.raises(KeyError, match="filename 'x' not found: it holds no members"):
            tar.read("x")


@pytest.mark.long
def test_import_brings_no_torch():
    code, out, error = run_python("import sys, headrace.dropins.indexed_tar; print('torch' in sys.modules)")
    assert (code, out, error) == (0, "False\n", "")
