"""A pack has the columns, classes, types, values and keys of its source: of every kind of source, by generated schemas.

Its tars are also read by tarfile and webdataset, which know nothing of Headrace, by the schema in `pack.json`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import headrace as hr
from headrace.data import ByteColumn, Dataset
from headrace.pack import PackOptions, pack, verify

ROWS = 7
NAMES = (
    "image", "mask", "text", "caption", "label", "json", "cls", "txt", "a.b", "a.b.jpg", "cam.left", "cam.right",
    "Cam.left", "jpg", "JPG", "png", "png.jpg", "x", "x-2", "score", "a/b", "é", "%", "__y__", ".z", "z.", "a..b",
    " ", "values.json", "npy", "path", "file_name",
)  # fmt: skip
KEYS = (
    "a.b", "a_b", "a_b-2", "A", "x~2", "x", "x%2eb", "sub.dir/x", "sub.dir/x.y", ".hidden", "__meta__", "é ü", "x\ny",
    "",
)  # fmt: skip
CONTENTS = (b"", b"BMW drives", b"P6 is no picture", b"{}", b"7")
"""What columns of bytes hold beside pictures."""


def picture(rng: np.random.Generator) -> bytes:
    pixels = Image.fromarray(rng.integers(0, 256, (8, 9, 3), np.uint8))
    data = io.BytesIO()
    pixels.save(data, str(rng.choice(["PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP"])))
    return data.getvalue()


def content(rng: np.random.Generator) -> bytes:
    """A picture, or what a bytes column of another kind holds."""
    return (
        picture(rng) if rng.random() < 0.7 else [b"", b"BMW drives", b"P6 is no picture", b"{}", b"7"][rng.integers(5)]
    )


def some(rng: np.random.Generator, make: Callable[[], Any]) -> list[Any]:
    """Values of a column, of which a few may be missing."""
    missing = 0.3 if rng.random() < 0.5 else 0
    return [None if at and rng.random() < missing else make() for at in range(ROWS)]


def values_of(rng: np.random.Generator, kind: str) -> list[Any]:
    match kind:
        case "int":
            return [int(rng.integers(-3, 1 << 40)) for _ in range(ROWS)]
        case "class":
            return [int(rng.integers(0, 3)) for _ in range(ROWS)]
        case "float":
            odd = (math.inf, -math.inf, 1e-300, -0.0, 0.1)
            return some(rng, lambda: odd[rng.integers(5)] if rng.random() < 0.3 else float(rng.normal()))
        case "bool":
            return [bool(rng.integers(2)) for _ in range(ROWS)]
        case "text":
            return some(rng, lambda: ["ein Hund", "", "a", 'grün "q"\n', "a"][rng.integers(5)])
        case "ints":
            return [rng.integers(0, 9, rng.integers(4)).tolist() for _ in range(ROWS)]
        case "texts":
            return [["a", "b\n", ""][: rng.integers(1, 4)] for _ in range(ROWS)]
    raise AssertionError(kind)


def columns(rng: np.random.Generator, kinds: tuple[str, ...], *, most_bytes: int = 4) -> dict[str, list[Any]]:
    """Columns under drawn names: at least one of bytes, and some of these kinds."""
    names = [str(name) for name in rng.permutation(NAMES)[: rng.integers(1, 9)]]
    count = min(len(names), int(rng.integers(1, most_bytes + 1)))
    made = {name: some(rng, lambda: content(rng)) for name in names[:count]}
    made |= {name: values_of(rng, str(rng.choice(kinds))) for name in names[count:]}
    return {str(name): made[name] for name in rng.permutation(sorted(made))}


def in_memory(rng: np.random.Generator, folder: Path) -> Dataset:
    made: dict[str, Any] = columns(rng, ("int", "float", "bool", "text", "ints", "texts"))
    made["boxes"] = [rng.normal(size=(rng.integers(3), 4)).astype(np.float32) for _ in range(ROWS)]
    made["grid"] = rng.integers(0, 9, (ROWS, 2, 3)).astype(rng.choice(["u1", "i2", ">i4", "f2", "f8", "?"]))
    if rng.random() < 0.7:
        made["__key__"] = [KEYS[at] for at in rng.integers(0, len(KEYS), ROWS)]
    opened = hr.open(made)
    return opened.select(rng.integers(0, ROWS, 2 * ROWS)) if rng.random() < 0.5 else opened


def records(rng: np.random.Generator, folder: Path) -> Dataset:
    made = columns(rng, ("int", "float", "bool", "text", "ints"))
    return hr.open([dict(zip(made, row, strict=True)) for row in zip(*made.values(), strict=True)])


def frame(rng: np.random.Generator, folder: Path) -> Dataset:
    table = pa.table(columns(rng, ("int", "float", "bool", "text", "ints", "texts")))
    kind = rng.integers(3)
    if kind == 0:
        return hr.open(table)
    return hr.open(table.to_pandas()) if kind == 1 else hr.open(pytest.importorskip("polars").from_arrow(table))


def parquet(rng: np.random.Generator, folder: Path) -> Dataset:
    pq.write_table(pa.table(columns(rng, ("int", "float", "bool", "text", "ints", "texts"))), folder / "d.parquet")
    return hr.open(folder / "d.parquet")


def rows_with_paths(rng: np.random.Generator, folder: Path, kinds: tuple[str, ...]) -> dict[str, list[Any]]:
    """Columns with the bytes written to files, and their paths in place."""
    made = columns(rng, kinds)
    for number, (name, values) in enumerate(made.items()):
        if any(isinstance(value, bytes) for value in values):
            for row, value in enumerate(values):
                if value is not None:
                    (folder / f"{number}").mkdir(exist_ok=True)
                    (folder / f"{number}/{KEYS[row].replace('/', '_')}.{row}").write_bytes(value)
            paths = [f"{number}/{KEYS[row].replace('/', '_')}.{row}" for row in range(ROWS)]
            made[name] = ["" if value is None else path for value, path in zip(values, paths, strict=True)]
    return made


def comma_separated(rng: np.random.Generator, folder: Path) -> Dataset:
    made = rows_with_paths(rng, folder, ("int", "class", "text"))
    with open(folder / "list.csv", "w", newline="") as file:
        csv.writer(file).writerows([list(made), *zip(*made.values(), strict=True)])
    return hr.open(folder / "list.csv")


def json_lines(rng: np.random.Generator, folder: Path) -> Dataset:
    made = rows_with_paths(rng, folder, ("int", "bool", "text", "ints", "texts"))
    made["ratio"] = [None, *rng.normal(size=ROWS - 1).tolist()]
    lines = [json.dumps(dict(zip(made, row, strict=True))) for row in zip(*made.values(), strict=True)]
    (folder / "list.jsonl").write_text("\n".join(lines) + "\n")
    return hr.open(folder / "list.jsonl")


def class_folders(rng: np.random.Generator, folder: Path) -> Dataset:
    for at, name in enumerate(("a.b", "a_b", "a.b.c", "x~2", "x%2e", "shot 2.0", "y")):
        for suffix in ("jpg", "png")[: rng.integers(1, 3)]:
            place = folder / str(rng.choice(["dog", ".cat" if at == 9 else "cat.1", "Cow"])) / f"{name}.{suffix}"
            place.parent.mkdir(exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(place)
    return hr.open(folder, classes=None if rng.random() < 0.5 else bool(rng.integers(2)))


def pairs(rng: np.random.Generator, folder: Path) -> Dataset:
    for name in ("a", "b.c", "d/e"):
        for place in (folder / f"one/{name}.jpg", folder / f"two/{name}_m.png"):
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(place)
    second = str(rng.choice(["mask", "jpg", "cam.left"]))
    return hr.open({"image": f"{folder}/one/**/*.jpg", second: f"{folder}/two/**/*_m.png"})


def archive(rng: np.random.Generator, folder: Path) -> Dataset:
    """Members under drawn extensions, with `columns=`, `classes=` or neither."""
    extensions = [
        "jpg",
        *rng.permutation(["png", "cls", "txt", "json", "seg.png", "JPEG", "npy", "image"])[:4].tolist(),
    ]
    members: dict[str, bytes] = {}
    for number in range(ROWS):
        for extension in [each for each in extensions if rng.random() < 0.7] or ["jpg"]:
            known = {"cls": b"%d" % number, "txt": b"P6 text", "json": b'{"s": {"t": %d}, "u": "v"}' % number}
            members[f"c{number % 2}/{number}.{extension}"] = known.get(extension) or picture(rng)
    members["c0/z.jpg"] = picture(rng)
    if rng.random() < 0.5:
        with zipfile.ZipFile(folder / "s.zip", "w") as file:
            for name, data in members.items():
                file.writestr(name, data)
    else:
        with tarfile.open(folder / "s.tar", "w") as file:
            for name, data in members.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                file.addfile(entry, io.BytesIO(data))
    where = next(path for path in folder.iterdir() if path.suffix in (".zip", ".tar"))
    there = list(hr.open(where).columns)
    if "json" in there and rng.random() < 0.5:
        return hr.open(where, columns=["image", "json.s.t", "json.u", *rng.permutation(there)[:1].tolist()][:3])
    if rng.random() < 0.3:
        return hr.open(where, columns=["image", *(name for name in there if name != "image" and rng.random() < 0.5)])
    return hr.open(where, classes=True if rng.random() < 0.3 else None)


def saved(rng: np.random.Generator, folder: Path) -> Dataset:
    datasets = pytest.importorskip("datasets")
    made = {
        "image": [picture(rng) for _ in range(ROWS)],
        "label": values_of(rng, "class"),
        "ids": values_of(rng, "ints"),
    }
    features = datasets.Features({
        "image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=["a", "b", "c"]),
        "ids": datasets.Sequence(datasets.Value("int64")),
    })  # fmt: skip
    datasets.Dataset.from_dict(made, features=features).save_to_disk(str(folder / "hf"))
    return hr.open(folder / "hf")


def coco(rng: np.random.Generator, folder: Path) -> Dataset:
    images = [{"id": at + 1, "file_name": f"{at}.{at}.jpg", "width": 8, "height": 8} for at in range(ROWS)]
    for each in images:
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / each["file_name"])
    boxes = [
        {"id": at, "image_id": int(rng.integers(1, ROWS)), "category_id": 3 + 4 * int(rng.integers(2)),
         "bbox": [0.5, 1, 2, 3], "area": 6, "iscrowd": 0}
        for at in range(1, 20)
    ]  # fmt: skip
    categories = [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}]
    document = {"images": images, "annotations": boxes, "categories": categories}
    (folder / "c.json").write_text(json.dumps(document))
    return hr.open(folder / "c.json", root=folder)


SOURCES = (
    in_memory, archive, parquet, frame, comma_separated, json_lines, class_folders, pairs, records, archive, coco,
    in_memory, saved,
)  # fmt: skip


def read(dataset: Dataset, name: str, index: int) -> bytes | None:
    try:
        return dataset.read(name, index)
    except KeyError:
        return None


def check_equal(source: Dataset, found: Dataset) -> None:
    assert list(found.columns) == list(source.columns)
    assert list(found.keys) == list(source.keys)
    if found.fields.get("label") != "bytes":  # paths of files are no classes
        assert found.classes == source.classes
    for name, column in source.columns.items():
        other = found.columns[name]
        if isinstance(other, ByteColumn):  # texts that name files become the files
            assert isinstance(column, ByteColumn) or source.has_bytes(name)
            for index in range(len(source)):
                assert read(found, name, index) == read(source, name, index), (name, index)
            continue
        assert other.kind == column.kind
        assert other.classes == column.classes
        theirs, ours = source.column(name), found.column(name)
        if isinstance(theirs, np.ndarray):
            theirs, ours = [theirs], [ours]
        for one, two in zip(theirs, ours, strict=True):
            if isinstance(one, np.ndarray):
                assert two.dtype == one.dtype.newbyteorder("=")
                np.testing.assert_array_equal(two, one)
            else:
                assert two == one


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    return value


def refuse(word: str) -> Any:
    raise AssertionError(f"{word} is no JSON")


def check_members(source: Dataset, folder: Path) -> None:
    """Check the samples as webdataset groups them, by the schema's names, and the members as tarfile reads them."""
    webdataset = pytest.importorskip("webdataset")
    tars = sorted(map(str, folder.glob("*.tar")))
    samples = list(webdataset.WebDataset(tars, shardshuffle=False, empty_check=False))
    assert len(samples) == len(source)
    assert len({sample["__key__"] for sample in samples}) == len(source)
    with tarfile.open(tars[0]) as archive:
        names = [member.name for member in archive]
    assert len(tars) > 1 or len(names) == sum(len([name for name in each if name[:2] != "__"]) for each in samples)
    schema = json.loads((folder / "pack.json").read_text())["schema"]
    for column in schema:
        name, place, kind = column["name"], column.get("place", ""), column["kind"]
        values = None if kind == "bytes" else source.column(name)
        for index, sample in enumerate(samples):
            if kind == "bytes":
                wanted = read(source, name, index)
                if "of" not in column and wanted is not None:
                    mine = [each for each in sample if each == place or each.rpartition(".")[0] == place]
                    assert wanted in [sample[each] for each in mine], (name, mine)
            elif place in ("cls", "txt"):
                value = values[index]
                assert sample[place] == (value.encode() if place == "txt" else b"%d" % value)
            else:
                assert json.loads(sample[place], parse_constant=refuse)[name] == plain(values[index])


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed >= 2 * len(SOURCES) else ()) for seed in range(200)]
)
def test_a_pack_opens_as_its_source(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(seed)
    (tmp_path / "in").mkdir()
    source = SOURCES[seed % len(SOURCES)](rng, tmp_path / "in")
    to = tmp_path / "pack"
    size = 6_000 if rng.random() < 0.5 else 1_000_000_000
    report = pack(source, to, PackOptions(max_shard_bytes=size))
    assert report.samples == len(source)
    assert verify(to) == []
    check_equal(source, hr.open(to))
    check_equal(source, hr.open(str(to / "shard-*.tar")))
    check_members(source, to)


PACK = """
import sys, headrace as hr
from pathlib import Path
from headrace.pack import PackOptions, pack
pack(hr.open(sys.argv[1]), Path(sys.argv[2]), PackOptions(max_shard_bytes=6_000), tick=lambda *_: print(flush=True))
"""


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", [pytest.param(at, marks=pytest.mark.long if at >= 1 else ()) for at in range(30)])
def test_a_pack_of_any_schema_that_is_killed_keeps_whole_shards_and_goes_on(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    made = {name: values * 20 for name, values in columns(rng, ("int", "float", "bool", "text", "ints")).items()}
    pq.write_table(pa.table(made), tmp_path / "d.parquet")
    source, to = hr.open(tmp_path / "d.parquet"), tmp_path / "pack"
    command = [sys.executable, "-c", PACK, str(tmp_path / "d.parquet"), str(to)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(rng.integers(1, 12)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    shards = {tar.name: tar.read_bytes() for tar in to.glob("*.tar")}
    for tar in shards:
        with tarfile.open(to / tar) as archive:
            assert all(len(archive.extractfile(member).read()) == member.size for member in archive)
    pack(source, to, PackOptions(max_shard_bytes=6_000))
    assert all((to / tar).read_bytes() == data for tar, data in shards.items()), "a finished shard was written again"
    assert verify(to) == []
    check_equal(source, hr.open(to))
    check_members(source, to)
