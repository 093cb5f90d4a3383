"""Manifests that are damaged, odd or not what they are called: each is read as it is meant, or refused in words."""

from __future__ import annotations

import csv
import errno
import io
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_loads import says
from manifests import write_csv, write_json_lines
from processes import run_python

import headrace as hr
import headrace.data as data
from headrace.data.manifest.text_files import MAX_LINE_BYTES
from headrace.data.storage import safetensors
from headrace.errors import DatasetError, EmptyDatasetError, ReadError, UsageError

MB = 1 << 20


def opened(tmp_path, name, content, **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return data.open(path, **options)


def refused(error, *texts, tmp_path, name, content, **options):
    with pytest.raises(error) as caught:
        opened(tmp_path, name, content, **options)
    says(caught, f"{name}", *texts)


# --- texts as other programs write them ---


@pytest.mark.parametrize("name", ["list.csv", "list.tsv"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["bare", "byte-order mark"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "unended"])
def test_line_ends_and_marks(tmp_path, name, line_end, mark, last):
    text = line_end.join(["image,label", "a.jpg,3", "", "b.jpg,4", ""]).replace(",", "\t" if "tsv" in name else ",")
    ds = opened(tmp_path, name, mark + text.removesuffix("" if last else line_end).encode())
    assert list(ds.columns) == ["image", "label"]
    assert [ds[i]["image"] for i in range(2)] == ["a.jpg", "b.jpg"]
    assert [ds[i]["label"] for i in range(2)] == [3, 4]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["bare", "byte-order mark"])
@pytest.mark.parametrize("name", ["list.txt", "list.jsonl"])
def test_line_ends_and_marks_of_lines(tmp_path, name, mark):
    lines = [b"a b.jpg", b"", b"c.jpg"] if name == "list.txt" else [b'{"image": "a b.jpg"}', b" ", b'{"image":"c.jpg"}']
    for text in (b"\r\n".join(lines), b"\n".join([*lines, b""])):
        ds = opened(tmp_path, name, mark + text, columns=["image"])
        assert list(ds.keys) == ["a b.jpg", "c.jpg"]


QUOTED = [
    ["a,b", 'say "hi"', "two\nlines"],
    ["", "\r\n", '"'],
    [" spaced ", "a\tb", "é 日本 🎞"],
    ["'single'", "#no comment", "a;b"],
]


@pytest.mark.parametrize("delimiter", [",", "\t"], ids=["csv", "tsv"])
def test_quotes_as_rfc_4180_has_them(tmp_path, delimiter):
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter)
    writer.writerows([["x", "y", "z"], *QUOTED])
    ds = opened(tmp_path, "list.csv" if delimiter == "," else "list.tsv", buffer.getvalue())
    assert [[ds[i][name] for name in "xyz"] for i in range(len(QUOTED))] == QUOTED


def test_rows_are_named_by_line_only_where_each_has_one(tmp_path):
    plain = opened(tmp_path, "plain.csv", "image,n\na,1\nb,2\n")
    assert plain.named("image", 1) == "line 3 of plain.csv names 'b'"
    bare = opened(tmp_path, "bare.csv", "a,1\nb,2", columns=["image", "n"])
    assert bare.named("image", 1) == "line 2 of bare.csv names 'b'"
    lines = opened(tmp_path, "lines.csv", 'image,n\n"a\nb",1\nc,2\n')
    assert lines.named("image", 1) == "row 1 of lines.csv names 'c'"
    blank = opened(tmp_path, "blank.jsonl", '{"image": "a"}\n\n{"image": "b"}\n')
    assert blank.named("image", 1) == "row 1 of blank.jsonl names 'b'"
    assert blank.select([1]).named("image", 0) == "row 1 of blank.jsonl names 'b'"


# --- encodings ---


@pytest.mark.parametrize("name", ["list.csv", "list.txt", "list.jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_other_encodings_are_named(tmp_path, name, encoding):
    text = "\ufeffimage,label\na.jpg,3\n" if encoding.endswith("be") else "image,label\na.jpg,3\n"
    kind = encoding.upper()[:6]
    refused(
        DatasetError, f"expected UTF-8, got {kind} (its byte-order mark). Convert it: iconv -f {kind} -t UTF-8 {name}",
        tmp_path=tmp_path, name=name, content=text.encode(encoding),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (b"image\na.jpg\nb\xe9.jpg\n", 3, "0xe9"),
        (b"\xff\n", 1, "0xff"),
        (b"image\n" + b"x\n" * 700_000 + b"\xc3", 700_002, "0xc3"),  # cut off in the midst of a character
        (b"image\n" + b"x" * (MB - 7) + b"\n\xc3\xa9\n\xed\xa0\x80", 4, "0xed"),  # a character on the edge of a block
    ],
    ids=["Latin 1", "first byte", "cut off", "surrogate"],
)
def test_bytes_that_are_no_utf_8(tmp_path, content, line, byte):
    texts = [f"list.csv line {line}: expected UTF-8, got the byte {byte}. ", "iconv -f LATIN1 -t UTF-8 list.csv"]
    refused(DatasetError, *texts, tmp_path=tmp_path, name="list.csv", content=content)


@pytest.mark.parametrize("name", ["list.csv", "list.txt", "list.jsonl"])
def test_nul_bytes(tmp_path, name):
    refused(
        DatasetError, "line 2: expected text, got a NUL byte. Is it UTF-16, or binary?",
        tmp_path=tmp_path, name=name, content=b"image\na\0b\n",
    )  # fmt: skip


# --- rows that do not fit ---


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("x,y\n1,2\n3\n4,5\n", ["list.csv line 3: expected 2 fields as in the first line, got 1: '3'."]),
        ("x,y\n1,2\n\n\n3,4,5\n", ["line 5: expected 2 fields as in the first line, got 3: '3,4,5'."]),
        ('x,y\n"a\nb",2\n"3,4\n', ["line 4: expected 2 fields", "got 1", "goes in quotes"]),
        ("x,y\n" + "1,2\n" * 300_000 + "3\n", ["line 300,002: expected 2 fields"]),
        ('x,y\n1,2\n3,"4\n5,6\n7,8\n', ["line 3: expected every quote to be closed within ", "or to the end"]),
        ('x\n"\n', ["line 2: expected every quote to be closed within ", "or to the end"]),
        ("x,y,x\n1,2,3\n", ["expected column names that differ, got 'x' twice. Rename one"]),
        (",".join(map(str, range(1001))) + "\n", ["expected at most 1,000 columns, got 1,001"]),
    ],
    ids=["short", "long", "after quotes", "late", "open quote", "only a quote", "names", "many columns"],
)
def test_rows_that_do_not_fit_a_csv(tmp_path, content, texts):
    refused(DatasetError, *texts, tmp_path=tmp_path, name="list.csv", content=content)


def test_fields_without_names(tmp_path):
    refused(
        DatasetError, "line 1: expected 2 fields, one for each of ['x', 'y'], got 3: '1,2,3'",
        tmp_path=tmp_path, name="list.csv", content="1,2,3\n", columns=["x", "y"],
    )  # fmt: skip
    refused(
        DatasetError, "line 2: expected 2 fields between blanks, one for each of columns=['x', 'y'], got 3 fields",
        tmp_path=tmp_path, name="list.txt", content="1 2\n1 2 3\n", columns=["x", "y"],
    )  # fmt: skip
    refused(
        DatasetError, "line 1: expected one path a line, got 2 fields, such as 'a.jpg'. Name the fields with columns=",
        "or pass columns=['image'] if the blanks belong to the path",
        tmp_path=tmp_path, name="list.txt", content="a.jpg b.png\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('{"x": 1}\n{"x": \n', ["line 2: expected a JSON object, such as", "got b'{\"x\": \\n'"]),
        ('{"x": 1}\n[1]\n', ["line 2: expected a JSON object", "got b'[1]\\n'"]),
        ('[{"x": 1}]', ["line 1: expected a JSON object"]),
        ('{"x": NaN}', ["line 1: expected a JSON object"]),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", ["line 1: expected a JSON object"]),
        ("".join(f'{{"{i}": 1}}\n' for i in range(1001)), ["expected at most 1,000 columns, got 1,001"]),
    ],
    ids=["cut short", "a list", "one list of all", "no number", "deep", "many columns"],
)
def test_lines_that_are_no_json_object(tmp_path, content, texts):
    refused(DatasetError, *texts, tmp_path=tmp_path, name="list.jsonl", content=content)


@pytest.mark.parametrize("name", ["list.csv", "list.tsv", "list.txt", "list.jsonl", "list.odgt"])
def test_nothing_in_it(tmp_path, name):
    for content in ("", "\n\n\r\n", "\ufeff"):
        refused(EmptyDatasetError, "expected ", "got ", tmp_path=tmp_path, name=name, content=content)


def test_rows_without_a_column(tmp_path):
    refused(
        EmptyDatasetError, "expected at least one column, got none",
        tmp_path=tmp_path, name="list.jsonl", content="{}\n{}\n",
    )  # fmt: skip


def test_a_header_and_nothing_else(tmp_path):
    for content in ("image,label", "image,label\n\n"):
        refused(
            EmptyDatasetError, "expected a row a sample, got a header and no row after it",
            tmp_path=tmp_path, name="list.csv", content=content,
        )  # fmt: skip


# --- what is beyond memory ---


@pytest.mark.long
def test_lines_of_a_gigabyte_are_refused_in_little_memory(tmp_path):
    """Out of pipes, so that nobody has to write a gigabyte first."""
    names = ["list.csv", "quoted.csv", "list.txt", "list.jsonl"]
    for name in names:
        os.mkfifo(tmp_path / name)
    code, out, error = run_python(READ_A_GIGABYTE, tmp_path, *names)
    assert code == 0, error
    *messages, grown_mb = out.splitlines()
    assert messages == [
        f"{name} line 1: expected at most {MAX_LINE_BYTES:,} bytes a line, got more. Is it a manifest?"
        for name in names
    ]
    assert int(grown_mb) < 100


READ_A_GIGABYTE = """
import os, resource, sys, threading
import headrace.data.manifest.column_builders
from headrace.data.manifest.manifest_table import read_manifest
from headrace.errors import DatasetError

def fill(path):
    try:
        with open(path, "wb", buffering=0) as pipe:
            pipe.write(b'"' if "quoted" in path else b"{")
            for _ in range(1 << 10):
                pipe.write(b"x" * (1 << 20))
    except BrokenPipeError:
        pass

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[2:]:
    path = os.path.join(sys.argv[1], name)
    threading.Thread(target=fill, args=[path], daemon=True).start()
    try:
        read_manifest([path], [name], ["image"]).schema()
    except DatasetError as error:
        print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_rows_of_many_lines_are_bounded_too(tmp_path):
    content = b'x,y\n1,2\n"' + b"line\n" * (3 * MAX_LINE_BYTES // 5) + b'",2\n'
    refused(
        DatasetError, f"line 3: expected every quote to be closed within {MAX_LINE_BYTES:,} bytes, got one",
        tmp_path=tmp_path, name="list.csv", content=content,
    )  # fmt: skip


def test_a_line_of_the_greatest_length_is_read(tmp_path):
    text = "x" * (MAX_LINE_BYTES - 10)
    ds = opened(tmp_path, "list.csv", f"image,text\na.jpg,{text}\nb.jpg,y\n")
    assert ds[0]["text"] == text
    assert ds[1]["text"] == "y"


# --- parquet ---


def test_what_is_no_parquet(tmp_path):
    for content in (b"", b"PAR1", b"image\na.jpg\n", b"PAR1" + bytes(100) + b"PAR1"):
        refused(
            DatasetError, "expected a parquet file, got one that cannot be read: ",
            tmp_path=tmp_path, name="list.parquet", content=content,
        )  # fmt: skip


def parquet(tmp_path, **columns):
    pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    return tmp_path / "list.parquet"


def test_a_parquet_file_that_is_cut_or_changed(tmp_path):
    path = parquet(tmp_path, image=[f"{i}.jpg" for i in range(5000)])
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(40):
        damaged = bytearray(whole)
        damaged[int(rng.integers(len(whole)))] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged if rng.integers(2) else damaged[: int(rng.integers(len(whole)))])
        try:
            data.open(path)
        except (DatasetError, ReadError) as error:
            messages.append(str(error))
    assert len(messages) > 10
    assert all("list.parquet" in message for message in messages)


def test_texts_in_a_parquet_file_that_are_no_utf_8(tmp_path):
    """Those of a column are kept as they are, as names of files are; others cannot be told."""
    odd = pa.array([b"a\xff"]).view(pa.string())
    assert data.open(parquet(tmp_path, image=odd))[0]["image"] == "a\udcff"
    nested = parquet(tmp_path, image=["a"], s=pa.StructArray.from_arrays([odd], ["x"]))
    with pytest.raises(DatasetError, match=r"list\.parquet: expected a parquet file, .* 'utf-8' codec can't decode"):
        data.open(nested)
    pq.write_table(pa.table({"wxyz": ["a"]}), nested, store_schema=False)
    nested.write_bytes(nested.read_bytes().replace(b"wxyz", b"w\xffyz"))
    with pytest.raises(DatasetError, match=r"list\.parquet: expected a parquet file, .* 'utf-8' codec can't decode"):
        data.open(nested)


def test_lists_of_one_length_may_be_null(tmp_path):
    boxes = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    ds = data.open(parquet(tmp_path, image=["a", "b"], box=boxes))
    assert [ds[row]["box"].tolist() for row in range(2)] == [[1, 2], []]


def test_a_parquet_file_without_rows(tmp_path):
    with pytest.raises(EmptyDatasetError, match="expected a row a sample, got none"):
        data.open(parquet(tmp_path, image=pa.array([], pa.string())))


def test_bytes_inside_structs_of_a_parquet_file_are_no_column(tmp_path):
    path = parquet(tmp_path, image=["a.jpg"], crops=[{"jpeg": b"abc"}])
    assert data.open(path).skipped == {"columns with bytes inside structs": 1}
    with pytest.raises(UsageError) as caught:
        data.open(path, columns=["image", "crops"])
    says(caught, "columns: expected columns of bytes, paths or values, got 'crops' (struct<jpeg: binary>)", "Leave it")


# --- columns that are asked for ---


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"img": hr.Image()}, "field 'img': expected a column of the dataset, got 'img'; it has image, label, n"),
        (
            {"image": hr.Image(source="n")},
            "'image': expected a column of bytes or of paths, got the values of 'n'",
        ),
        ({"x": hr.Label(source="tags")}, "field 'x': expected one number a sample, or names of classes, got a list"),
    ],
    ids=["no such column", "no paths", "no classes"],
)
def test_fields_that_no_column_has(tmp_path, fields, text):
    rows = {"image": ["a.jpg", "b.jpg"], "label": ["x", "y"], "n": [1, 2], "tags": [["p"], []]}
    ds = data.open(write_json_lines(tmp_path / "list.jsonl", rows))
    with pytest.raises(UsageError) as caught:
        hr.Loader(ds, fields, batch_size=2, output="numpy", view=None)
    says(caught, text)


@pytest.mark.parametrize("name", ["list.jsonl", "list.parquet"])
def test_columns_that_the_manifest_has_not(tmp_path, name):
    if name == "list.jsonl":
        path = write_json_lines(tmp_path / name, {"image": ["a"], "n": [1]})
    else:
        path = parquet(tmp_path, image=["a"], n=[1])
    with pytest.raises(UsageError) as caught:
        data.open(path, columns=["image", "label"])
    assert str(caught.value) == f"columns: expected names of columns of {name} ('image', 'n'), got 'label'"


# --- files that cannot be read ---


def test_no_such_manifest(tmp_path):
    write_csv(tmp_path / "train.csv", {"image": ["a"]})
    with pytest.raises(hr.errors.NotFoundError, match=r"Did you mean .*train\.csv\?"):
        data.open(tmp_path / "trian.csv")


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl", "list.parquet"])
def test_a_manifest_that_may_not_be_read(as_nobody, name):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, name)
        Path(path).write_bytes(b"image\na\n")
        os.chmod(path, 0)
        with as_nobody(), pytest.raises(ReadError, match="Permission denied; check its permissions"):
            data.open(path)
        os.chmod(path, 0o600)


def test_no_room_for_temporary_files(tmp_path, monkeypatch):
    path = write_csv(tmp_path / "list.csv", {"image": ["a"]})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(DatasetError) as caught:
        data.open(path)
    says(caught, f"{tmp_path}/none: expected a folder for temporary files with room, got: No such file")
    says(caught, "set TMPDIR to another folder")


def test_no_room_for_what_is_mapped(tmp_path, monkeypatch):
    def write(file, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = write_csv(tmp_path / "list.csv", {"image": ["a"]})
    monkeypatch.setattr(safetensors, "_IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(safetensors, "write_arrays", write)
    with pytest.raises(DatasetError, match=r"room, got: No space left on device\. Free some, or set TMPDIR"):
        data.open(path)
