"""The examples of docs/packs.md for other engines, each as a script: their images are a Loader's, bit for bit."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from docs_pages import examples
from loader_data import encoded
from processes import LimitedProcess

import headrace as hr

COUNT = 20

COLLECTED = {
    "Ray Data": ("ray", "found = {row['id']: row['image'] for row in images.take_all()}"),
    "Daft": ("daft", "table = images.to_pydict(); found = dict(zip(table['id'], table['image']))"),
    "Spark": (
        "pyspark",
        "found = {row.id: numpy.frombuffer(row.pixels, 'uint8').reshape(3, 224, 224) for row in images.collect()}",
    ),
    "Grain": (
        "grain",
        "found = {label: image for batch in images for label, image in zip(batch['label'], batch['image'])}",
    ),
    "torchdata": (
        "torchdata",
        "found = {int(label): image for batch in images for label, image in zip(batch['label'], batch['image'])}",
    ),
}
"""Package of each section, and lines that collect the images by id; labels are ids here."""

END = """
if __name__ == "__main__":
    import numpy
    {collect}
    numpy.save("found.npy", numpy.stack([numpy.asarray(found[number]) for number in range({count})]))
"""


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=() if title == "torchdata" else pytest.mark.long) for title in COLLECTED]
)
def test_example(title, tmp_path):
    package, collect = COLLECTED[title]
    if find_spec(package) is None:
        pytest.skip(f"needs {package}")
    files = [encoded(number)[1] for number in range(COUNT)]
    numbers = list(range(COUNT))
    pq.write_table(pa.table({"image": files, "label": numbers, "id": numbers}), tmp_path / "photos.parquet")
    code = dict(zip(COLLECTED, examples("packs.md", "Other engines"), strict=True))[title]
    (tmp_path / "script.py").write_text(code + END.format(collect=collect, count=COUNT))
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ADDRESS": "local",
    }
    assert LimitedProcess([sys.executable, "script.py"], cwd=tmp_path, env=environment).wait() == 0
    view = hr.RandomResizedCrop(224, flip=0.5)
    (batch,) = hr.Loader(tmp_path / "photos.parquet", view=view, batch_size=COUNT, output="numpy")
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), batch["image"])
