"""webdataset's commands and joined lists: the error says the very line that opens the same shards."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import UsageError

SECRET = "planted-secret-of-tests"


def refused(where: object) -> str:
    with pytest.raises(UsageError, match=r"^expected addresses or paths, got ") as caught:
        hr.open(where)  # type: ignore[arg-type]
    said = str(caught.value)
    assert SECRET not in said
    return said


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("pipe:aws s3 cp s3://bucket/t-{000..009}.tar -", "hr.open('s3://bucket/t-{000..009}.tar')"),
        ("pipe:aws s3 cp 's3://bucket/a b/é.tar' - || true", "hr.open('s3://bucket/a b/é.tar')"),
        ("pipe:curl -s -L https://host/t.tar", "hr.open('https://host/t.tar')"),
        ("pipe:wget -qO- https://host/{a,b}.tar 2>/dev/null", "hr.open('https://host/{a,b}.tar')"),
        (
            f"pipe:curl -sL https://huggingface.co/datasets/me/set/resolve/main/a%20b/{{0..3}}.tar -H 'X: {SECRET}'",
            "hr.open('hf://datasets/me/set@main/a b/{0..3}.tar'). The token is that of `hf auth login`, or HF_TOKEN",
        ),
        ("pipe:gsutil -m cat gs://bucket/t.tar", "hr.open('gs://bucket/t.tar')"),
        ("pipe:gcloud storage cat gs://bucket/t.tar", "hr.open('gs://bucket/t.tar')"),
        ("pipe:cat /data/t-{00..09}.tar", "hr.open('/data/t-{00..09}.tar')"),
        ("pipe:dd if=/data/t.tar bs=1M", "hr.open('/data/t.tar')"),
        (
            "pipe:aws --profile work --endpoint-url=http://host:9000 s3 cp s3://bucket/t.tar -",
            "hr.open('s3://bucket/t.tar', store_options={'profile': 'work', 'endpoint': 'http://host:9000'})",
        ),
        (
            "pipe:s5cmd --no-sign-request cat s3://bucket/t.tar",
            "hr.open('s3://bucket/t.tar', store_options={'anonymous': True})",
        ),
        ("s3://bucket/a.tar::gs://other/{0..3}.tar", "hr.open(['s3://bucket/a.tar', 'gs://other/{0..3}.tar'])"),
        ("a.tar::b.tar::pipe:cat c.tar::d.tar", "hr.open(['a.tar', 'b.tar', 'c.tar', …])"),
        ([f"pipe:cat {number}.tar" for number in range(2)], "hr.open(['0.tar', '1.tar'])"),
    ],
)
def test_the_line_that_opens_it_is_said(where: object, line: str) -> None:
    assert f"Write: {line}" in refused(where)


def test_what_a_line_cannot_say_is_said_beside_it() -> None:
    said = refused(f"pipe:curl -s -H 'Authorization: Bearer {SECRET}' https://me:{SECRET}@host/t.tar?sig={SECRET}")
    assert "the command 'curl'" in said
    assert "hr.open('https://host/t.tar'). Keep the user and the query of the address" in said
    assert "'default_headers'" in said
    apart = refused(["pipe:aws s3 cp s3://a/0.tar -", "pipe:aws --profile b s3 cp s3://b/0.tar -"])
    assert apart.endswith("joined with hr.mix")


@pytest.mark.parametrize(
    "command", [f"hadoop fs -cat /t.tar {SECRET}", "aws s3 cp s3://b/t.tar.gz - | gunzip", "cat", "", "echo 'x"]
)
def test_other_commands_are_explained(command: str) -> None:
    said = refused(f"pipe:{command}")
    assert "Commands are not run here" in said
    assert "Write the addresses of the tars that it reads (s3://…, gs://…, az://…, https://… or paths)" in said


@pytest.mark.long
def test_the_line_reads_what_webdataset_reads(tmp_path: Path) -> None:
    import webdataset

    for shard in ("a", "b"):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            entry = tarfile.TarInfo(f"{shard}.cls")
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"7"))
    command = f"pipe:cat {tmp_path}/{{a,b}}.tar"
    theirs = [sample["__key__"] for sample in webdataset.WebDataset(command, shardshuffle=False)]
    line = refused(command).partition("hr.open('")[2].partition("')")[0]
    assert list(hr.open(line).keys) == theirs == ["a", "b"]


def test_names_with_colons_stay_names(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar::b.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a.cls"), io.BytesIO())
    assert len(hr.open(tmp_path / "a.tar::b.tar")) == 1
    assert len(hr.open(str(tmp_path / "a.tar::b.tar"))) == 1
