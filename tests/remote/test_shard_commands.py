"""webdataset's commands and joined lists: the error names the address that opens the same shards."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import UsageError

SECRET = "planted-secret-of-tests"


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("pipe:aws s3 cp s3://bucket/t-{000..009}.tar -", "hr.open('s3://bucket/t-{000..009}.tar')"),
        ("pipe:wget -qO- https://host/{a,b}.tar 2>/dev/null", "hr.open('https://host/{a,b}.tar')"),
        (f"pipe:curl -H 'X: {SECRET}' https://me:{SECRET}@host/t.tar?sig={SECRET}", "hr.open('https://host/t.tar')"),
        ("pipe:gsutil -m cat 'gs://bucket/t.tar'|cat", "hr.open('gs://bucket/t.tar')"),
        (f"pipe:hadoop fs -cat /t.tar {SECRET}", "store_options="),
        ("pipe:", "store_options="),
        (f"s3://me:{SECRET}@b/a.tar::gs://other/{{0..3}}.tar", "hr.open(['s3://b/a.tar', 'gs://other/{0..3}.tar', …])"),
        ("a.tar::b.tar::pipe:cat c.tar", "hr.open(['a.tar', 'b.tar', …])"),
        (["a.tar", "pipe:cat s3://b/0.tar"], "hr.open('s3://b/0.tar')"),
    ],
)
def test_the_address_that_opens_it_is_said(where: object, line: str) -> None:
    with pytest.raises(UsageError, match=r"^expected addresses or paths, got ") as caught:
        hr.open(where)  # type: ignore[arg-type]
    assert line in str(caught.value)
    assert SECRET not in str(caught.value)


def test_names_with_colons_stay_names(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar::b.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a.cls"), io.BytesIO())
    assert len(hr.open(tmp_path / "a.tar::b.tar")) == 1
    assert len(hr.open(str(tmp_path / "a.tar::b.tar"))) == 1
