"""What is kept of a large manifest: found again, mapped or read in place, and never taken for another's."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from manifests import write_csv, write_json_lines
from processes import run_python

import headrace as hr
import headrace.data as data
from headrace.data.manifest import column_builders, manifest_table
from headrace.data.manifest.text_columns import UntypedRows
from headrace.data.storage import safetensors, sidecar, strings
from headrace.data.storage.open_file import OpenFile
from headrace.data.storage.strings import StoredStrings, StringColumn
from headrace.errors import ChangedError, DatasetError, ReadError

ROWS = 40_000


def rows(count=ROWS):
    return {
        "image": [f"train/{i % 7}/{i:08d}.jpg" for i in range(count)],
        "label": [f"class {i % 7}" for i in range(count)],
        "number": range(count),
    }


def write_many(path, count):
    """As `rows`, without a Python object each."""
    number = pa.array(np.arange(count))
    text = number.cast(pa.string())
    label = pa.array(np.arange(count) % 7).cast(pa.string())
    image = pc.binary_join_element_wise("train", label, pc.utf8_lpad(text, 8, "0"), "/")
    pq.write_table(pa.table({"image": image, "label": label, "number": number}), path)
    return path


@pytest.fixture
def built(monkeypatch):
    """Manifests that were built, in order."""
    seen = []

    def counted(source, **where):
        seen.append(source)
        return build(source, **where)

    build = column_builders.build_columns
    monkeypatch.setattr(column_builders, "build_columns", counted)
    return seen


@pytest.fixture
def manifest(tmp_path):
    return write_csv(tmp_path / "list.csv", rows())


@pytest.mark.long
def test_a_second_opening_builds_nothing(manifest, built):
    first, second = data.open(manifest), data.open(manifest)
    assert len(built) == 1
    assert repr(first) == repr(second)
    assert first.fingerprint == second.fingerprint
    for i in (0, 1, 777, ROWS - 1):
        assert first[i] == second[i] == {name: values[i] for name, values in rows().items()} | {"__key__": first.key(i)}
    assert sorted(os.listdir(manifest.parent)) == ["list.csv", "list.csv.headrace"]


def test_a_small_manifest_leaves_nothing_beside_it(tmp_path, built):
    path = write_csv(tmp_path / "list.csv", rows(100))
    assert data.open(path).fingerprint == data.open(path).fingerprint
    assert len(built) == 2
    assert os.listdir(tmp_path) == ["list.csv"]


@pytest.mark.long
def test_kept_or_not_it_is_the_same(manifest, monkeypatch):
    kept = data.open(manifest)
    monkeypatch.setattr(manifest_table, "_KEPT_FROM_BYTES", 1 << 40)
    whole = data.open(manifest)
    assert isinstance(kept.columns["image"].strings, StoredStrings)
    assert kept.fingerprint == whole.fingerprint
    assert list(kept.keys) == list(whole.keys) == rows()["image"]
    np.testing.assert_array_equal(kept.columns["label"].labels.values, whole.columns["label"].labels.values)
    assert kept.classes == whole.classes == tuple(f"class {i}" for i in range(7))


def test_later_openings_do_without_pyarrow(manifest):
    data.open(manifest)
    code, out, error = run_python(
        "import sys; import headrace as hr; ds = hr.open(sys.argv[1]); "
        "print(len(ds), ds[5]['image'], any(name.startswith(('pyarrow', 'pandas')) for name in sys.modules))",
        manifest,
    )
    assert (code, out) == (0, f"{ROWS} train/5/00000005.jpg False\n"), error


# --- which manifest it is of ---


@pytest.mark.parametrize("how", ["in place", "replaced"])
@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
@pytest.mark.one_in(4)
def test_another_of_the_same_size_and_time(manifest, built, monkeypatch, how, whole):
    """Changed in a place that no sample of the content reaches."""
    if not whole:
        monkeypatch.setattr(sidecar, "_WHOLE_BYTES", 0)
    before = data.open(manifest)
    status, content = manifest.stat(), bytearray(manifest.read_bytes())
    at = content.index(b"00000321.jpg")
    content[at : at + 8] = b"99999999"
    path = manifest if how == "in place" else manifest.with_name("new")
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.rename(manifest)
    now = manifest.stat()
    assert (now.st_size, now.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    after = data.open(manifest)
    assert len(built) == 2
    assert before[321]["image"] == "train/6/00000321.jpg"  # what was opened before stays as it was
    assert after[321]["image"] == "train/6/99999999.jpg"
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize("count", [ROWS, 10], ids=["kept", "small"])
def test_replaced_while_it_is_read(tmp_path, monkeypatch, count):
    manifest = write_csv(tmp_path / "list.csv", rows(count))
    build = column_builders.build_columns

    def replaced(source, **where):
        found = build(source, **where)
        manifest.write_bytes(manifest.read_bytes().replace(b"class 1", b"class 8"))
        return found

    monkeypatch.setattr(column_builders, "build_columns", replaced)
    with pytest.raises(ChangedError, match="it was replaced while it was indexed"):
        data.open(manifest)
    assert os.listdir(manifest.parent) == ["list.csv"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("count", [ROWS, 10], ids=["kept", "small"])
@pytest.mark.long
def test_replaced_between_two_looks_at_it(tmp_path, monkeypatch, count):
    """What were numbers at the first are none at the second: that is not the manifest's fault."""
    manifest = write_csv(tmp_path / "list.csv", rows(count))
    find_schema = UntypedRows.schema

    def replaced(source):
        found = find_schema(source)
        write_csv(manifest, rows(count) | {"number": ["none"] * count})
        return found

    monkeypatch.setattr(UntypedRows, "schema", replaced)
    with pytest.raises(ChangedError, match="it was replaced while it was indexed"):
        data.open(manifest)
    assert os.listdir(manifest.parent) == ["list.csv"]


def test_other_columns_have_another_index(manifest, built, tmp_path):
    for _ in range(2):
        assert list(data.open(manifest).columns) == ["image", "label", "number"]
        assert list(data.open(manifest, columns=["number", "label"]).columns) == ["number", "label"]
        assert list(data.open(manifest, columns=["label", "number"]).columns) == ["label", "number"]
    assert len(built) == 3
    names = sorted(os.listdir(tmp_path))
    assert len(names) == 4
    assert all(name.startswith("list.csv") and name.endswith(".headrace") for name in names[1:])


# --- where it lies ---


def test_a_cache_folder(manifest, tmp_path, built):
    cache = tmp_path / "cache"
    assert data.open(manifest, cache=cache).fingerprint == data.open(manifest, cache=cache).fingerprint
    assert len(built) == 1
    assert [name.split(".")[:2] for name in os.listdir(cache)] == [["list", "csv"]]
    assert sorted(os.listdir(tmp_path)) == ["cache", "list.csv"]


def test_a_read_only_folder(own_cache, as_nobody, built):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = write_csv(Path(folder) / "list.csv", rows())
        os.chmod(own_cache, 0o777)
        for parent in list(own_cache.parents)[:-2]:
            os.chmod(parent, os.stat(parent).st_mode | 0o011)
        with as_nobody():
            assert data.open(path).fingerprint == data.open(path).fingerprint
        assert os.listdir(folder) == ["list.csv"]
        assert len(os.listdir(own_cache)) == 1
    assert len(built) == 1


def test_nowhere_to_keep_it(manifest, tmp_path, monkeypatch, built):
    """It is read each time, and its texts still do not fill memory."""
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"")
    monkeypatch.setenv("HEADRACE_CACHE", str(blocked / "cache"))
    (tmp_path / "list.csv.headrace.partial").mkdir()
    monkeypatch.setattr(safetensors, "_IN_MEMORY_BYTES", 0)
    with pytest.warns(UserWarning, match="the index of .*list.csv cannot be cached"):
        ds = data.open(manifest)
    assert isinstance(ds.keys, StoredStrings)
    assert ds[7]["image"] == rows()["image"][7]
    assert len(built) == 1


def full_in(monkeypatch, folder):
    """Every write to an unnamed file there says that the disk is full; a list of the folders that were written to."""
    seen, pwrite = [], os.pwrite

    def write(descriptor, content, at):
        where = os.path.dirname(os.readlink(f"/proc/self/fd/{descriptor}"))
        seen.append(where)
        if where == str(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, content, at)

    monkeypatch.setattr("headrace.data.storage.file_writing.os.pwrite", write)
    return seen


def test_what_is_too_long_for_memory_grows_where_the_index_goes(manifest, own_cache, monkeypatch):
    seen = full_in(monkeypatch, None)
    data.open(manifest)
    assert set(seen) == {str(manifest.parent)}
    seen.clear()
    Path(f"{manifest}.headrace").unlink()
    Path(f"{manifest}.headrace.partial").mkdir()
    data.open(manifest)
    assert set(seen) == {str(own_cache)}


def test_a_full_disk_is_left_for_the_next_place(manifest, own_cache, monkeypatch):
    full_in(monkeypatch, manifest.parent)
    assert data.open(manifest)[5]["number"] == 5
    assert os.listdir(manifest.parent) == ["list.csv"]
    assert len(os.listdir(own_cache)) == 1
    with pytest.raises(DatasetError, match=r"cache folder given: .*\.headrace: No space left on device\. Name one"):
        data.open(manifest, cache=manifest.parent)


# --- damage ---


def edited(path, edit):
    """The sidecar of `path` with its arrays and outline changed by `edit`."""
    place = f"{path}.headrace"
    arrays, metadata = safetensors.read_arrays(place)
    arrays = {name: array.copy() for name, array in arrays.items()}
    outline = json.loads(metadata["outline"])
    edit(arrays, outline)
    with open(place + ".new", "wb") as file:
        safetensors.write_arrays(file, arrays, metadata | {"outline": json.dumps(outline)})
    os.replace(place + ".new", place)


EDITS = {
    "no column": lambda arrays, _: arrays.pop("column.0.blob"),
    "short": lambda arrays, _: arrays.update({"column.2.values": arrays["column.2.values"][:-1]}),
    "another type": lambda arrays, _: arrays.update({"column.2.values": arrays["column.2.values"].view(np.uint64)}),
    "ends": lambda arrays, _: arrays["column.0.offsets"].__setitem__(-1, 5),
    "no classes": lambda arrays, _: arrays.pop("column.1.classes.offsets"),
    "rows": lambda _, outline: outline.update(rows=ROWS + 1),
    "no rows": lambda _, outline: outline.update(rows=0),
    "kind": lambda _, outline: outline["columns"][0].__setitem__(1, "bytes"),
    "key": lambda _, outline: outline.update(key=3),
    "names": lambda _, outline: outline["columns"][0].__setitem__(0, "label"),
    "no digest": lambda _, outline: outline.pop("digest"),
    "a list": lambda _, outline: outline.update(columns=[["image", "list"], ["label", "text"], ["number", "value"]]),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(edit, id=name, marks=pytest.mark.long if place % 3 else ())
        for place, (name, edit) in enumerate(EDITS.items())
    ],
)
def test_a_damaged_index_is_built_again(manifest, built, edit):
    expected = data.open(manifest)
    edited(manifest, edit)
    with pytest.warns(UserWarning, match=r"expected the index of .*list\.csv, got a damaged file"):
        again = data.open(manifest)
    assert len(built) == 2
    assert again.fingerprint == expected.fingerprint
    assert again[11] == expected[11]


def test_damage_in_between_is_noticed_where_it_is_read(manifest):
    data.open(manifest)
    edited(manifest, lambda arrays, _: arrays["column.0.offsets"].__setitem__(100, 2**40))
    ds = data.open(manifest)
    assert ds[98]["image"] == rows()["image"][98]
    for index, then in ((99, "It was removed: open the dataset again"), (100, "Remove it, and open again")):
        with pytest.raises(ChangedError, match=rf"list\.csv\.headrace: .*it is damaged\. {then}"):
            ds[index]


@pytest.mark.parametrize("offset", [2**63, 2**40, 5], ids=["beyond numbers", "beyond memory", "falling"])
@pytest.mark.parametrize("items", [[1, 2], ["a", "b"]], ids=["numbers", "texts"])
def test_damaged_lists_are_noticed_where_they_are_read(tmp_path, monkeypatch, items, offset):
    monkeypatch.setattr(manifest_table, "_KEPT_FROM_BYTES", 0)
    path = write_json_lines(tmp_path / "list.jsonl", {"image": ["a", "b", "c"], "items": [items] * 3})
    data.open(path)
    edited(path, lambda arrays, _: arrays["column.1.offsets"].__setitem__(1, offset))
    ds = data.open(path)
    assert len(ds[2]["items"]) == 2
    with pytest.raises(ChangedError, match=r"got one from .* is damaged\. Remove it, and open again"):
        ds[1 if offset == 5 else 0]


def test_an_index_that_is_cut_off_under_a_reader(manifest):
    ds = data.open(manifest)
    os.truncate(f"{manifest}.headrace", 4096)
    with pytest.raises(ChangedError, match=r"the index ends early"):
        ds.key(30_000)


# --- strings in a file ---


@pytest.mark.long
def test_stored_strings_are_those_that_were_stored(tmp_path):
    rng = np.random.default_rng(5)
    texts = ["é" * int(rng.integers(0, 5)) + "x" * int(rng.integers(0, 9)) for _ in range(80_000)]
    whole = StringColumn.from_list(texts)
    path = tmp_path / "strings"
    path.write_bytes(b"pad" + whole.blob.tobytes() + b"....." + whole.offsets.tobytes())
    stored = StoredStrings(
        OpenFile(os.fsencode(path)),
        blob_at=3,
        blob_bytes=len(whole.blob),
        offsets_at=8 + len(whole.blob),
        count=len(whole),
    )
    assert len(stored) == len(texts)
    which = rng.integers(0, len(texts), 1000)
    assert list(stored.take(which)) == [texts[i] for i in which]
    assert list(stored) == list(whole) == texts
    assert [stored[i] for i in (0, -1, 70_000)] == [texts[0], texts[-1], texts[70_000]]
    assert list(stored.take(np.array([], np.int64))) == []
    again = pickle.loads(pickle.dumps(stored))
    path.unlink()
    assert list(again) == texts
    for index in (len(texts), -len(texts) - 1):
        with pytest.raises(IndexError):
            stored[index]


# --- processes ---


@pytest.mark.long
def test_a_dataset_goes_to_another_process_by_name(manifest):
    ds = data.open(manifest).select([5, 3])
    sent = pickle.dumps(ds)
    assert len(sent) < 2000
    again = pickle.loads(sent)
    assert [again[i]["number"] for i in range(2)] == [5, 3]
    assert again.fingerprint == ds.fingerprint
    write_csv(manifest, rows(ROWS + 1))
    with pytest.raises(ChangedError, match=r"manifest list\.csv: it holds other samples than when it was opened first"):
        pickle.loads(sent)
    manifest.unlink()
    with pytest.raises(ReadError):
        pickle.loads(sent)


def test_a_fork_reads_beside_its_parent(manifest):
    ds = data.open(manifest)
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        got = pool.map(ds.key, range(0, 2000, 10))
    assert got == [ds.key(i) for i in range(0, 2000, 10)]


BUILD_WHEN_TOLD = """
import sys
import headrace.data as data
from headrace.data.manifest import column_builders as building
build = building.build_columns
def told(source, **where):
    print("building", flush=True)
    sys.stdin.readline()
    return build(source, **where)
building.build_columns = told
print(data.open(sys.argv[1]).fingerprint, flush=True)
"""


def start(script, *args):
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_until_blocked(child):
    while not any("->" in line and f" {child.pid} " in line for line in Path("/proc/locks").read_text().splitlines()):
        assert not select.select([child.stdout], [], [], 0.01)[0], child.stdout.readline()


@pytest.mark.long
def test_two_processes_at_once_build_one_index(manifest):
    with start(BUILD_WHEN_TOLD, manifest) as first:
        assert first.stdout.readline() == "building\n"
        with start(BUILD_WHEN_TOLD, manifest) as second:
            wait_until_blocked(second)
            first.communicate("\n")
            out, _ = second.communicate()
    assert out == data.open(manifest).fingerprint + "\n"


@pytest.mark.long
def test_a_builder_that_is_killed_leaves_nothing_that_looks_finished(manifest):
    with start(BUILD_WHEN_TOLD, manifest) as child:
        assert child.stdout.readline() == "building\n"
        child.send_signal(signal.SIGKILL)
    assert not Path(f"{manifest}.headrace").exists()
    assert data.open(manifest)[1]["number"] == 1
    assert sorted(os.listdir(manifest.parent)) == ["list.csv", "list.csv.headrace"]


# --- counts, where a million rows must not count ---


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = write_many(tmp_path_factory.mktemp("many") / "list.parquet", 1_000_000)
    data.open(path)
    return path


@pytest.mark.long
def test_opening_allocates_nothing_a_row(many):
    fields = {"p": hr.Raw(source="image"), "label": hr.Label()}
    make_loader = hr.Loader  # imported before memory is counted
    data.open(many)
    tracemalloc.start()
    ds = data.open(many)
    loader = make_loader(ds, fields, batch_size=64, shuffle=True, output="numpy")
    loader.set_epoch(3)
    assert loader.state_dict()["dataset"] == ds.fingerprint
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000  # less than a byte a row


@pytest.mark.long
def test_a_batch_reads_the_texts_of_its_own_samples_alone(many, monkeypatch):
    asked = []

    def counted(descriptor, *, which, **where):
        asked.append(len(which))
        return take_names(descriptor, which=which, **where)

    take_names = strings.take_names
    monkeypatch.setattr(strings, "take_names", counted)
    ds = data.open(many)
    fields = {"p": hr.Raw(source="image"), "label": hr.Label()}
    loader = hr.Loader(ds, fields, batch_size=64, shuffle=True, output="numpy", prefetch=2)
    for epoch in range(3):
        loader.set_epoch(epoch)
        iterator = iter(loader)
        next(iterator)
        iterator.close()
    assert set(asked) == {64}
    assert len(asked) <= 3 * (2 + 2)  # what the consumer has, what is ready, and what is under way
    asked.clear()
    assert ds.select(np.arange(0, 1_000_000, 2)).key(3) == ds.key(6)
    assert asked == [1, 1]


MEMORY = """
import sys
import numpy as np
import headrace as hr

def anonymous():
    lines = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("Rss"))
    return int(lines["RssAnon"].split()[0])

def mapped_of_index():
    found, ours = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split(":")[0].split()[0]:  # the first line of a mapping
            ours = line.rstrip().endswith(".headrace")
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found

before = anonymous()
ds = hr.open(sys.argv[1])
fields = {"p": hr.Raw(source="image"), "label": hr.Label()}
loader = hr.Loader(ds, fields, batch_size=512, shuffle=True, output="numpy", threads=1)
for step, batch in enumerate(loader):
    if step == 200:
        break
print(anonymous() - before >> 10, mapped_of_index() >> 10)
"""


@pytest.mark.long
def test_a_pass_at_random_keeps_texts_out_of_memory(many):
    """A hundred thousand of a million texts, which are 35 MB with their offsets, and labels of 4 MB."""
    code, out, error = run_python(MEMORY, many)
    assert code == 0, error
    anonymous_mb, mapped_mb = map(int, out.split())
    assert anonymous_mb < 20
    assert 4 <= mapped_mb < 6
