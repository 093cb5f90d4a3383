"""Captions as they are: bytes of a member, texts of a manifest, and `Raw(text=True)`, which is str from both."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np
import pytest

import headrace as hr
from headrace.errors import DecodeError, TooManyBadSamplesError, UsageError

CAPTIONS = ["a cat", "ein Bär", "漢字", ""]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("captions")
    with tarfile.open(root / "a.tar", "w") as archive:
        for number, caption in enumerate(CAPTIONS):
            for suffix, data in (("txt", caption.encode()), ("json", json.dumps({"caption": caption}).encode())):
                member = tarfile.TarInfo(f"{number}.{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    rows = [{"txt": caption, "number": number, "tags": ["x"]} for number, caption in enumerate(CAPTIONS)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def unchanged(sample, rng):
    return sample


def values(data, field, **options):
    loader = hr.Loader(data, {"caption": field}, batch_size=3, shuffle=False, output="numpy", **options)
    return [value for batch in loader for value in batch["caption"]]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "options", [{}, {"map": unchanged}, {"map": unchanged, "map_workers": 1}], ids=["", "map", "workers"]
)
def test_texts_of_members_manifests_and_json_are_alike(sources, options):
    tar, rows = hr.open(sources / "a.tar"), hr.open(sources / "rows.jsonl")
    keys = hr.open(sources / "a.tar", columns=["txt", "json.caption"])
    assert values(tar, hr.Raw(source="txt", text=True), **options) == CAPTIONS
    assert values(rows, hr.Raw(source="txt", text=True), **options) == CAPTIONS
    assert values(keys, hr.Raw(source="json.caption", text=True), **options) == CAPTIONS
    assert values(tar, hr.Raw(source="txt"), **options) == [caption.encode() for caption in CAPTIONS]


def test_undecoded_members_stay_bytes(sources):
    data = hr.open(sources / "a.tar")
    assert data[1]["txt"] == data.column("txt")[1] == CAPTIONS[1].encode()


def test_bytes_that_are_no_text_are_a_bad_sample(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, data in enumerate([b"fine", b"\xff\xfe", b"too"]):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    data, field = hr.open(tmp_path / "a.tar"), hr.Raw(source="txt", text=True)
    assert {*values(data, field, max_bad=0.5)} == {"fine", "too"}
    with pytest.raises((DecodeError, TooManyBadSamplesError), match="0xff"):
        values(data, field, on_error="raise")


@pytest.mark.parametrize("column", ["number", "tags"])
def test_columns_without_texts_are_refused(sources, column):
    with pytest.raises(UsageError, match="texts"):
        values(hr.open(sources / "rows.jsonl"), hr.Raw(source=column, text=True))


def test_text_is_a_bool():
    with pytest.raises(UsageError, match="text"):
        hr.Raw(text=np.int64(1))
