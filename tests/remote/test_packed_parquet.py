"""Images inside parquet in stores: opening reads no page, samples read no other column, and values are pyarrow's."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loader_data import encode, photograph
from servers import StoreServer

import headrace as hr
from headrace.errors import ChangedError, DatasetError, UsageError
from headrace.fetch import read_groups

ROWS = 240
PHOTOS = [encode(photograph(number % 12, 90, 120), "PNG") + bytes([number]) for number in range(ROWS)]
"""Some 30 kB each."""
FORMS: dict[str, dict[str, Any]] = {
    "as datasets writes": {"compression": "none", "use_dictionary": False, "write_page_index": True,
                           "use_content_defined_chunking": {"min_chunk_size": 1 << 17, "max_chunk_size": 1 << 18}},
    "as pyarrow writes": {"row_group_size": 40},
    "compressed": {"compression": "zstd", "use_dictionary": False, "row_group_size": 40, "write_page_index": True,
                   "write_batch_size": 8, "data_page_size": 100_000},
}  # fmt: skip


def parquet(form: str, photos: list[bytes], first: int) -> bytes:
    images = [{"bytes": data, "path": f"{number}.png"} for number, data in enumerate(photos)]
    other = [bytes([number % 251]) * 20_000 for number in range(len(photos))]
    table = pa.table({"image": images, "label": range(first, first + len(photos)), "other": other})
    target = io.BytesIO()
    pq.write_table(table, target, **FORMS[form])
    return target.getvalue()


@pytest.fixture(scope="module")
def written() -> dict[str, list[bytes]]:
    """Each form in two files."""
    half = ROWS // 2
    return {form: [parquet(form, PHOTOS[:half], 0), parquet(form, PHOTOS[half:], half)] for form in FORMS}


@pytest.fixture
def remote(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreServer]:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    yield store
    store.objects.clear()


def opened(remote: StoreServer, files: list[bytes]) -> hr.Dataset:
    remote.objects.update({f"data/train-{number:05}-of-00002.parquet": data for number, data in enumerate(files)})
    remote.requests.clear()
    return hr.open("s3://bucket/data/", store_options=remote.options)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("form", FORMS)
def test_opening_reads_no_page_and_samples_are_pyarrows(
    form: str, written: dict[str, list[bytes]], remote: StoreServer
) -> None:
    data = opened(remote, written[form])
    assert remote.bytes_read() < 600_000 < sum(map(len, PHOTOS)) / 6
    units = data.table.bytes_of("image").units  # type: ignore[attr-defined]
    assert (len(data), data.labels().tolist()) == (ROWS, [*range(ROWS)])
    tables = [pq.read_table(pa.BufferReader(each), columns=["image"]) for each in written[form]]
    images = pa.concat_tables(tables).column("image").to_pylist()
    remote.requests.clear()
    assert data.column("image") == [each["bytes"] for each in images]
    assert remote.bytes_read() < 1.05 * sum(map(len, PHOTOS))  # neither the other column nor a page twice
    assert data.read("image", 131) == data[131]["image"] == PHOTOS[131]
    sent = pickle.loads(pickle.dumps(data.table.bytes_of("image"))).locate(np.array([7]))  # has seen no page itself
    assert (sent.packed.start, sent.packed.stop) == (units.start[0], units.stop[0])
    remote.requests.clear()
    again = hr.open("s3://bucket/data/", store_options=remote.options)
    assert again.fingerprint == data.fingerprint
    assert remote.bytes_read() <= 4096  # pages are known by the cache folder


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "order",
    [pytest.param("global", marks=pytest.mark.long), hr.Windowed(block_bytes=1 << 20, window_blocks=4)],
    ids=["global", "windows"],
)
def test_batches_are_those_of_the_photographs(
    form: str, order: Any, written: dict[str, list[bytes]], remote: StoreServer
) -> None:
    data = opened(remote, written[form])
    loader = hr.Loader(
        data, {"image": hr.Raw(), "label": hr.Label()}, batch_size=16, shuffle=True, seed=3, order=order, output="numpy"
    )
    seen: list[int] = []
    for epoch in range(2):
        for batch in loader:
            labels = batch["label"].tolist()
            assert [bytes(each) for each in batch["image"]] == [PHOTOS[label] for label in labels]
            seen += labels
        assert sorted(seen[epoch * ROWS :]) == [*range(ROWS)]


def test_images_are_decoded_from_pages(written: dict[str, list[bytes]], remote: StoreServer, tmp_path: Path) -> None:
    local = {"image": PHOTOS, "label": np.arange(ROWS)}
    options: dict[str, Any] = {"batch_size": 32, "shuffle": True, "seed": 1, "output": "numpy", "threads": 2}
    view = hr.RandomResizedCrop(16)
    for form in ("as datasets writes", "as pyarrow writes"):
        loaders = [
            hr.Loader(each, {"image": hr.Image()}, view=view, **options)
            for each in (opened(remote, written[form]), hr.open(local))
        ]
        for mine, other in zip(*loaders, strict=True):
            assert np.array_equal(mine["image"], other["image"])


def test_values_of_plain_pages_are_exact_ranges_once_seen(written: dict[str, list[bytes]], remote: StoreServer) -> None:
    data = opened(remote, written["as datasets writes"])
    assert data.read("image", 50) == PHOTOS[50]
    remote.requests.clear()
    assert data.read("image", 50) == PHOTOS[50]
    assert remote.bytes_read() == len(PHOTOS[50])
    at = data.locate("image", np.array([50, 51]))
    assert at.length is not None
    assert at.length.tolist() == [len(PHOTOS[50]), len(PHOTOS[51])]  # of the same page


def test_a_file_that_was_replaced_is_a_changed_error(written: dict[str, list[bytes]], remote: StoreServer) -> None:
    data = opened(remote, written["compressed"])
    remote.objects["data/train-00001-of-00002.parquet"] = written["as datasets writes"][1]
    with pytest.raises(ChangedError, match="train-00001-of-00002"):
        data.read("image", ROWS - 1)
    assert data.read("image", 0) == PHOTOS[0]


def test_pages_that_are_damaged_are_named(written: dict[str, list[bytes]], remote: StoreServer) -> None:
    first, second = written["as datasets writes"]
    damaged = first[:4] + bytes(64) + first[68:]
    data = opened(remote, [damaged, second])
    named = r"s3://bucket/data/train-00000-of-00002\.parquet: expected pages of binary values from byte 4 to"
    with pytest.raises(DatasetError, match=named):
        data.read("image", 0)
    loader = hr.Loader(data, {"image": hr.Raw()}, batch_size=16, output="numpy")
    with pytest.raises(DatasetError, match=named):
        list(loader)
    assert data.read("image", ROWS - 1) == PHOTOS[-1]


def test_batches_of_which_the_pages_do_not_fit_are_refused(
    written: dict[str, list[bytes]], remote: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = opened(remote, written["as pyarrow writes"])
    monkeypatch.setattr(read_groups, "available_to_rank", lambda: 30 << 20)
    options: dict[str, Any] = {"batch_size": 64, "shuffle": True, "output": "numpy"}
    with pytest.raises(UsageError, match=r"64 samples that are read by .* Pass order='windowed'"):
        hr.Loader(data, {"image": hr.Raw()}, **options)
    hr.Loader(data, {"image": hr.Raw()}, order=hr.Windowed(block_bytes=1 << 20, window_blocks=2), **options)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("form", FORMS)
def test_an_epoch_in_windows_reads_pages_about_once(
    form: str, written: dict[str, list[bytes]], remote: StoreServer
) -> None:
    """Steps and windows that need a page which is in memory for others take it from there."""
    data = opened(remote, written[form])
    order = hr.Windowed(block_bytes=800_000, window_blocks=3)
    shape = order.resolve(data)
    remote.requests.clear()
    loader = hr.Loader(data, {"image": hr.Raw()}, batch_size=16, shuffle=True, order=order, output="numpy")
    assert sum(len(batch["image"]) for batch in loader) == ROWS
    assert remote.bytes_read() < 1.6 * sum(map(len, PHOTOS))
    assert order.resolve(data) == shape  # whatever of the pages has been seen meanwhile
    if form == "as pyarrow writes":
        assert shape.block == 40  # its row groups
