"""The lines of docs/migration.md: those before, where their package is installed, and those after, on made data."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import add_file
from docs_pages import section
from loader_data import encode, photograph

LOADERS = re.findall(r"^## (From .*)", section("migration.md"), re.MULTILINE)
SAMPLES = 32
IMAGES = [encode(photograph(number, 48, 40), "JPEG") for number in range(SAMPLES)]
LABELS = [number % 5 for number in range(SAMPLES)]
HEADINGS = ["Before", "After", "Concepts", "What is different", "What stays theirs"]


def lines(page: str, heading: str) -> str:
    """Return the Python of a section, whose addresses are those of files here."""
    part = section("migration.md", page).partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    here = code.replace("aws s3 cp s3://bucket/", "cat ").replace(".tar -", ".tar").replace("s3://bucket/", "")
    return here.replace("hf://datasets/OWNER/NAME/", "").replace("OWNER/NAME", str(Path.cwd()))


def run(page: str, heading: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(lines(page, heading), page, "exec"), names)
    return names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the same samples in tars and in parquet."""
    for part in range(4):
        with tarfile.open(tmp_path / f"train-{part:03}.tar", "w") as tar:
            for number in range(part * 8, part * 8 + 8):
                add_file(tar, f"{number:03}.jpg", IMAGES[number])
                add_file(tar, f"{number:03}.cls", str(LABELS[number]).encode())
    (tmp_path / "data").mkdir()
    images = [{"bytes": image, "path": f"{number}.jpg"} for number, image in enumerate(IMAGES)]
    table = pa.table({"image": images, "label": LABELS})
    features = {"image": {"_type": "Image"}, "label": {"dtype": "int64", "_type": "Value"}}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, tmp_path / "data" / "train-00000-of-00001.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("page", LOADERS)
def test_the_lines_after_give_batches(folder: Path, page: str) -> None:
    names = run(page, "After")
    assert len(names["loader"]) == 2
    assert len(names["images"]) == 16
    assert sorted(names["dataset"].labels().tolist()) == sorted(LABELS)
    assert re.findall(r"^### (.*)", section("migration.md", page), re.MULTILINE)[-3:] == HEADINGS[-3:]


@pytest.mark.long
@pytest.mark.leaks(reason="worker processes and threads of the other loaders")
@pytest.mark.parametrize(
    ("page", "package"), [("From WebDataset", "webdataset"), ("From streamed Hugging Face datasets", "datasets")]
)
@pytest.mark.filterwarnings("default")
def test_the_lines_before_run(folder: Path, page: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(package)
    monkeypatch.setenv("HF_HOME", str(folder / "hf"))
    names = run(page, "Before")
    assert names["images"].shape[1:] == (3, 224, 224)


def write_files() -> list[str]:
    for number, image in enumerate(IMAGES):
        Path(f"{number:02}.jpg").write_bytes(image)
    return [f"{number:02}.jpg" for number in range(SAMPLES)]


def make_mds() -> None:
    from streaming import MDSWriter  # type: ignore[import-not-found]

    with MDSWriter(out="mds", columns={"image": "jpeg", "label": "int"}, size_limit=20_000) as writer:
        for path in write_files():
            writer.write(labelled(path))


def labelled(path: str) -> dict[str, Any]:
    from PIL import Image

    return {"image": Image.open(path), "label": LABELS[int(Path(path).stem)]}


def make_optimized() -> None:
    import litdata  # type: ignore[import-not-found]

    litdata.optimize(fn=labelled, inputs=write_files(), output_dir="optimized", chunk_bytes="64MB", num_workers=1)


MAKERS = {"streaming": make_mds, "litdata": make_optimized}
TITLES = {"streaming": "Streaming", "litdata": "LitData"}


@pytest.mark.long
@pytest.mark.leaks(reason="worker processes and threads of the other loaders")
@pytest.mark.parametrize("package", MAKERS)
@pytest.mark.filterwarnings("default")
def test_their_formats_become_tars_of_the_same_bytes(folder: Path, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    page = f"From {TITLES[package]}"
    MAKERS[package]()
    (folder / "before.py").write_text(lines(page, "Before"))  # as a program: optimize changed how processes start here
    packages = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "before.py"], env=packages, timeout=100, check=True)
    for tar in folder.glob("train-*.tar"):
        tar.unlink()
    run(page, "To tars")
    names = run(page, "After")
    assert [names["dataset"].read("jpg", number) for number in range(SAMPLES)] == IMAGES
    assert np.array_equal(names["dataset"].labels(), LABELS)
