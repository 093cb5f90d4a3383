"""Where the paths of a manifest lead: a folder that they stay in, and archives that are read in place."""

from __future__ import annotations

import os
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
from bad_loads import JPEG, fails, says
from manifests import write_csv
from zip_files import zip_members

import headrace as hr
import headrace.data as data
from headrace._core import NameLookup, leads_out
from headrace.data.archives.archive_members import NameTable
from headrace.data.storage.strings import StringColumn
from headrace.errors import ChangedError, DatasetError, NotFoundError, OutsideRootError, ReadError, UsageError


def listing(tmp_path, *paths):
    return write_csv(tmp_path / "list.csv", {"image": paths, "n": range(len(paths))})


def load(ds, **options):
    given = {"view": hr.Resize((8, 8)), "batch_size": 4, "output": "numpy", "threads": 1}
    return hr.Loader(ds, {"image": hr.Image()}, **(given | options))


# --- folders ---


@pytest.mark.parametrize(
    ("path", "outside"),
    [
        ("a", False), ("a/b", False), ("./a", False), ("a/..", False), ("a/../b", False), ("a//b/", False),
        (".", False), ("..a", False), ("a..", False), ("a/...", False), ("", False),
        ("..", True), ("../a", True), ("a/../..", True), ("./../a", True), ("a/../../b", True), ("/", True),
        ("/a", True), ("a//../..", True), ("a/b/../../..", True),
    ],
)  # fmt: skip
def test_which_paths_lead_out(path, outside):
    assert leads_out(path.encode()) == outside
    # As the file system has it, in a folder that holds whatever is asked for.
    if path:
        normal = os.path.normpath(path)
        assert outside == (os.path.isabs(normal) or normal.split("/")[0] == "..")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "root" / "in").mkdir(parents=True)
    for name in ("root/a.jpg", "root/in/b.jpg", "secret.jpg"):
        (tmp_path / name).write_bytes(JPEG)
    return tmp_path / "root"


def test_paths_stay_below_a_root_that_is_given(folder, tmp_path):
    for path in ("../secret.jpg", "in/../../secret.jpg", str(folder / "a.jpg")):
        ds = data.open(listing(tmp_path, "a.jpg", "in/../a.jpg", path, "a.jpg"), root=folder)
        assert ds.read("image", 0) == ds.read("image", 1) == JPEG
        with pytest.raises(OutsideRootError) as caught:
            ds.read("image", 2)
        named = f"line 4 of list.csv names {path!r}: "
        says(caught, f"{named}the path {path!r} leads out of {folder}", "or open without root=")
        loader = load(ds.select([0, 1, 2, 0]), on_error="replace")
        fails(OutsideRootError, loader, f"sample {path!r}", "line 4 of list.csv", str(folder))


def test_a_path_that_leads_out_is_named_before_the_run(folder, tmp_path):
    with pytest.raises(OutsideRootError) as caught:
        load(data.open(listing(tmp_path, "../secret.jpg", "a.jpg"), root=folder))
    says(caught, f"line 2 of list.csv: the path '../secret.jpg' leads out of {folder}")


def test_without_a_root_paths_may_lead_anywhere(folder, tmp_path):
    manifest = listing(folder, "a.jpg", "../secret.jpg", str(tmp_path / "secret.jpg"))
    ds = data.open(manifest)
    assert [ds.read("image", i) for i in range(3)] == [JPEG] * 3
    (batch,) = load(ds, on_error="raise")
    assert len(batch["image"]) == 3


def test_a_name_with_a_nul_byte_is_no_files(folder, tmp_path):
    manifest = tmp_path / "list.jsonl"
    manifest.write_text('{"image": "a.jpg"}\n{"image": "a.jpg\\u0000b"}\n')
    ds = data.open(manifest, root=folder)
    with pytest.raises(ReadError, match=r"line 2 of list\.jsonl.*NUL"):
        ds.read("image", 1)
    fails(ReadError, load(ds), "NUL byte", "line 2 of list.jsonl")


# --- tars ---


@pytest.fixture
def tar(make_tar):
    """Names with and without "./", one twice, links, a folder, and what no manifest names."""
    links = []
    for name, kind, target in [
        ("soft/link.jpg", tarfile.SYMTYPE, "../plain/1.jpg"),
        ("hard.jpg", tarfile.LNKTYPE, "plain/1.jpg"),
        ("circle", tarfile.SYMTYPE, "circle"),
        ("nowhere", tarfile.SYMTYPE, "gone.jpg"),
        ("plain", tarfile.DIRTYPE, ""),
    ]:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        links.append((info, b""))
    members = [
        ("plain/1.jpg", b"one"),
        ("./dotted/2.jpg", b"two"),
        ("twice.jpg", b"old"),
        ("twice.jpg", b"new"),
        *links,
    ]
    return make_tar("photos.tar", members)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("plain/1.jpg", b"one"),
        ("./plain/1.jpg", b"one"),
        ("././plain/1.jpg", b"one"),
        ("./dotted/2.jpg", b"two"),
        ("dotted/2.jpg", b"two"),
        ("twice.jpg", b"new"),
        ("soft/link.jpg", b"one"),
        ("hard.jpg", b"one"),
    ],
)
def test_names_in_a_tar(tar, tmp_path, path, content):
    ds = data.open(listing(tmp_path, "plain/1.jpg", path), root=tar)
    assert ds.read("image", 1) == content
    assert ds.where("image", 1)[0] == str(tar)
    again = pickle.loads(pickle.dumps(ds))
    assert again.read("image", 1) == content


def test_a_tar_that_was_replaced_before_another_process_opens_it(tar, tmp_path):
    sent = pickle.dumps(data.open(listing(tmp_path, "plain/1.jpg"), root=tar))
    whole, status = tar.read_bytes(), tar.stat()
    tar.write_bytes(whole.replace(b"one" + bytes(509), b"two" + bytes(509)))
    os.utime(tar, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert tar.stat().st_size == len(whole)
    with pytest.raises(ChangedError, match=r"\.tar: expected the archive that was opened first, got another"):
        pickle.loads(sent)


@pytest.mark.parametrize("path", ["gone.jpg", "circle", "nowhere", "plain", "plain/", "/plain/1.jpg", "../plain/1.jpg"])
def test_a_name_that_a_tar_does_not_hold(tar, tmp_path, path):
    ds = data.open(listing(tmp_path, "plain/1.jpg", path), root=tar)
    with pytest.raises(ReadError) as caught:
        ds.read("image", 1)
    says(caught, f"line 3 of list.csv names {path!r}: no file of that name is in {tar}")
    named = f"sample {path!r} (line 3 of list.csv names {path!r})"
    fails(ReadError, load(ds), named, f"field 'image': no file of that name is in {tar};")


def test_a_loader_reads_a_tar_in_place(make_tar, folder, tmp_path):
    tar = make_tar("photos.tar", {"./a.jpg": JPEG, "in/b.jpg": JPEG})
    manifest = listing(tmp_path, "a.jpg", "./in/b.jpg", "in/b.jpg")
    batches = [list(load(data.open(manifest, root=root), on_error="raise")) for root in (tar, folder)]
    np.testing.assert_array_equal(batches[0][0]["image"], batches[1][0]["image"])
    assert len(batches[0][0]["image"]) == 3


def test_one_fingerprint_under_any_root(make_tar, folder, tmp_path):
    tar = make_tar("photos.tar", {"a.jpg": JPEG})
    manifest = listing(tmp_path, "a.jpg")
    assert len({data.open(manifest, root=root).fingerprint for root in (None, tar, folder)}) == 1


def test_several_tars_are_searched_in_order(make_tar, tmp_path):
    make_tar("p-0.tar", {"a.jpg": b"a0", "b.jpg": b"b0"})
    make_tar("p-1.tar", {"b.jpg": b"b1", "c.jpg": b"c1"})
    manifest = listing(tmp_path, "c.jpg", "b.jpg", "a.jpg", "d.jpg")
    for root in (tmp_path / "p-*.tar", tmp_path / "p-{0..1}.tar", [tmp_path / "p-0.tar", tmp_path / "p-1.tar"]):
        ds = data.open(manifest, root=root)
        assert [ds.read("image", i) for i in range(3)] == [b"c1", b"b0", b"a0"]
        with pytest.raises(ReadError, match=r"line 5 of list\.csv.* is in 2 archives .*p-0\.tar … .*p-1\.tar"):
            ds.read("image", 3)


def test_a_sample_without_a_path_has_none_in_a_tar(tar, tmp_path):
    ds = data.open(write_csv(tmp_path / "list.csv", {"n": [1, 2], "image": ["plain/1.jpg", ""]}), root=tar)
    with pytest.raises(KeyError):
        ds.read("image", 1)


def test_many_names_are_found_as_one_at_a_time(tmp_path):
    """Beside Python's dict."""
    rng = np.random.default_rng(3)
    names = [f"{'./' * int(rng.integers(3))}{int(rng.integers(40))}/{int(rng.integers(40))}" for _ in range(1500)]
    table = NameTable.build(StringColumn.from_list(names))
    last = {name: at for at, name in enumerate(names)}

    def expected(path):
        bare = path
        while bare.startswith("./"):
            bare = bare[2:]
        return next((last[name] for name in (path, bare, f"./{bare}") if name in last), -1)

    paths = [f"{'./' * int(rng.integers(3))}{int(rng.integers(45))}/{int(rng.integers(40))}" for _ in range(3000)]
    which = rng.permutation(len(paths))[:2000]
    found = table.find_paths(StringColumn.from_list(paths), which)
    assert found.tolist() == [expected(paths[at]) for at in which]
    assert -1 in found


def test_damaged_offsets_of_paths_are_noticed():
    table = NameTable.build(StringColumn.from_list(["a", "b"]))
    lookup = NameLookup(table.strings.blob, table.strings.offsets, table.starts, table.order)
    blob = np.zeros(4, np.uint8)
    for offsets, which in ([0, 9], 0), ([3, 1], 0), ([0, 2**63], 0), ([0, 1], 1), ([0, 1], -1):
        with pytest.raises(ValueError, match=r"lies outside|names what is not there"):
            lookup.find_paths(blob, np.array(offsets, np.uint64), np.array([which]))


# --- zips ---


@pytest.fixture
def zipped(tmp_path):
    """Names with and without "./", one twice, a folder."""
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [
            ("plain/", b""),
            ("plain/1.jpg", b"one"),
            ("./dotted/2.jpg", b"two"),
            ("twice.jpg", b"old"),
        ]:
            archive.writestr(name, content)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("twice.jpg", b"new")
    return path


def test_names_in_a_zip(zipped, tmp_path):
    paths = ["plain/1.jpg", "./plain/1.jpg", "dotted/2.jpg", "./dotted/2.jpg", "twice.jpg"]
    ds = data.open(listing(tmp_path, *paths), root=zipped)
    for opened in (ds, pickle.loads(pickle.dumps(ds))):
        assert [opened.read("image", i) for i in range(5)] == [b"one", b"one", b"two", b"two", b"new"]
    with zipfile.ZipFile(zipped) as archive:
        assert ds.where("image", 0) == (str(zipped), archive.getinfo("plain/1.jpg").header_offset)


@pytest.mark.parametrize("path", ["gone.jpg", "plain", "plain/", "/plain/1.jpg", "../plain/1.jpg"])
def test_a_name_that_a_zip_does_not_hold(zipped, tmp_path, path):
    ds = data.open(listing(tmp_path, "plain/1.jpg", path), root=zipped)
    with pytest.raises(ReadError) as caught:
        ds.read("image", 1)
    says(caught, f"line 3 of list.csv names {path!r}: no file of that name is in {zipped}")
    fails(ReadError, load(ds.select([1, 0])), f"no file of that name is in {zipped}")


def test_a_loader_reads_a_zip_in_place(folder, tmp_path):
    zips = [
        zip_members(tmp_path / "p-0.zip", {"./a.jpg": JPEG, "b.jpg": b"not this"}),
        zip_members(tmp_path / "p-1.zip", {"in/b.jpg": JPEG, "a.jpg": b"not this"}, zipfile.ZIP_STORED),
    ]
    manifest = listing(tmp_path, "a.jpg", "./in/b.jpg", "in/b.jpg")
    opened = [data.open(manifest, root=root) for root in (zips, folder)]
    batches = [list(load(ds, on_error="raise")) for ds in opened]
    np.testing.assert_array_equal(batches[0][0]["image"], batches[1][0]["image"])
    assert opened[0].fingerprint == opened[1].fingerprint


def test_tars_and_zips_together_are_no_root(make_tar, zipped, tmp_path):
    root = [make_tar("a.tar", {"a.jpg": JPEG}), zipped]
    with pytest.raises(UsageError, match="expected tars alone or zips alone"):
        data.open(listing(tmp_path, "a.jpg"), root=root)


# --- what is wrong ---


def test_no_file_of_those_looked_for_is_there(tmp_path, folder):
    manifest = write_csv(tmp_path / "list.csv", {"image": [f"photos/{i}.jpg" for i in range(100)]})
    with pytest.raises(NotFoundError) as caught:
        load(data.open(manifest))
    says(
        caught,
        "manifest list.csv: expected the files that its column 'image' names, got none of 8 looked for",
        f"below {tmp_path}, such as 'photos/0.jpg' (line 2 of list.csv). ",
        "Pass as root= the folder that the paths begin in, or archives that hold them",
    )
    with pytest.raises(NotFoundError, match=f"looked for below {folder}, such as .* Give the folder"):
        load(data.open(manifest, root=folder))


def test_no_name_of_those_looked_for_is_in_the_tar(tmp_path, make_tar):
    tar = make_tar("photos.tar", {"train/0.jpg": JPEG})
    with pytest.raises(NotFoundError) as caught:
        load(data.open(listing(tmp_path, "0.jpg", "1.jpg"), root=tar))
    says(caught, f"got none of 2 looked for in {tar}, such as '0.jpg'", "The first name there is 'train/0.jpg': write")


def test_one_missing_file_is_found_when_it_is_read(folder, tmp_path):
    ds = data.open(listing(tmp_path, "a.jpg", "gone.jpg", "in/b.jpg", "a.jpg"), root=folder)
    named = "line 3 of list.csv names 'gone.jpg'"
    where = [f"{folder}/gone.jpg", "No such file"]
    fails(ReadError, load(ds, on_error="replace"), f"sample 'gone.jpg' ({named})", "field 'image'", *where)
    with pytest.raises(ReadError) as caught:
        ds.read("image", 1)
    says(caught, named, *where)


@pytest.mark.parametrize(
    ("root", "error", "text"),
    [
        (
            3,
            UsageError,
            "expected the path of a folder or an archive, a pattern, or a list of archives as root=, got 3",
        ),
        ([], UsageError, "or a list of archives as root=, got an empty list"),
        ("", UsageError, "expected a path, got an empty string"),
        ("phots", NotFoundError, "root: expected a folder or an archive, got nothing at "),
        ("*.zzz", NotFoundError, "expected files that match '*.zzz', got none"),
        (["root", "root"], DatasetError, "root: expected one folder, or archives alone, got the folder "),
        ("list.csv", DatasetError, "list.csv"),
    ],
    ids=str,
)
def test_roots_of_nonsense(folder, tmp_path, monkeypatch, root, error, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        data.open(listing(tmp_path, "a.jpg"), root=root)
    says(caught, text)
