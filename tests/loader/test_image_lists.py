"""Several images a sample: their sources, frames, windows and bad images, beside Pillow and lists of single images."""

from __future__ import annotations

import csv
import io
import json
import pickle
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from docs_pages import examples
from loader_data import add_member
from PIL import Image
from text_data import tokenizer

import headrace as hr
from headrace.pack import PackOptions, pack

HEIGHT, WIDTH = 24, 32
COUNTS = (3, 0, 1, 12, 2, 5)
"""Images of each sample; more than ten, so that names in the order of texts would differ."""


def pixels(sample, place):
    """An image whose pixels tell the sample, the place in its list, and where in the image they are."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.uint8)
    return np.stack([np.full_like(rows, sample * 16 + place), rows, columns], axis=-1)


def encoded(sample, place):
    file = io.BytesIO()
    Image.fromarray(pixels(sample, place)).save(file, "PNG")
    return file.getvalue()


LISTS = [[encoded(sample, place) for place in range(count)] for sample, count in enumerate(COUNTS)]
EXPECTED = [np.stack([pixels(sample, place) for place in range(count)]) for sample, count in enumerate(COUNTS) if count]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("lists")
    for sample, files in enumerate(LISTS):
        (root / f"clip{sample}").mkdir()
        for place, data in enumerate(files):
            (root / f"clip{sample}" / f"frame{place}.png").write_bytes(data)
    return root


def names(sample):
    return [f"clip{sample}/frame{place}.png" for place in range(COUNTS[sample])]


def jsonl(root):
    rows = (json.dumps({"frames": names(sample)}) for sample in range(len(COUNTS)))
    (root / "rows.jsonl").write_text("\n".join(rows) + "\n")
    return hr.open(root / "rows.jsonl")


def cells_of_csv(root):
    with open(root / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["frames", "number"], *((json.dumps(names(each)), each) for each in range(len(COUNTS)))])
    return hr.open(root / "rows.csv")


def folders(root):
    return hr.open({"frames": [f"clip{sample}" for sample in range(len(COUNTS))]}, root=root)


def paths(root):
    return hr.open({"frames": [[root / name for name in names(sample)] for sample in range(len(COUNTS))]})


def table(kind):
    structs = [[{"bytes": data, "path": None} for data in files] for files in LISTS]
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array(structs, kind(struct)) if kind is not pa.binary else pa.array(LISTS, pa.list_(pa.binary()))
    return pa.table({"frames": column})


def parquet(root, compression, kind):
    path = root / f"{compression}{kind.__name__}.parquet"
    pq.write_table(table(kind), path, compression=compression, row_group_size=2)
    return hr.open(path)


def arrow(root):
    with pa.OSFile(str(root / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table(pa.list_).schema) as writer:
        writer.write_table(table(pa.list_), max_chunksize=2)
    return hr.open(root / "rows.arrow")


def columns(root):
    """Numbered columns of bytes, which many samples lack."""
    values = {f"frames.{n}": [files[n] if n < len(files) else None for files in LISTS] for n in range(max(COUNTS))}
    return hr.open(values)


def columns_of_paths(root):
    values = {
        f"frames.{place}": [
            str(root / names(each)[place]) if place < COUNTS[each] else "" for each in range(len(COUNTS))
        ]
        for place in range(max(COUNTS))
    }
    return hr.open(values)


def tar(root):
    with tarfile.open(root / "rows.tar", "w") as file:
        for sample, files in enumerate(LISTS):
            add_member(file, f"{sample}.cls", b"1")
            for place, data in enumerate(files):
                add_member(file, f"{sample}.frames.{place}", data)
    return hr.open(root / "rows.tar")


SOURCES = {
    "jsonl": jsonl,
    "cells of csv": cells_of_csv,
    "folders": folders,
    "paths": paths,
    "bytes": lambda root: hr.open({"frames": LISTS}),
    "structs in memory": lambda root: hr.open({"frames": [[{"bytes": data} for data in files] for files in LISTS]}),
    "parquet, plain": lambda root: parquet(root, "none", pa.list_),
    "parquet, large lists, zstd": lambda root: parquet(root, "zstd", pa.large_list),
    "parquet, bytes": lambda root: parquet(root, "snappy", pa.binary),
    "arrow": arrow,
    "table": lambda root: hr.open(table(pa.list_)),
    "columns of bytes": columns,
    "columns of paths": columns_of_paths,
    "tar": tar,
}


def field(source, image=None, **options):
    pattern = "frames.*" if source in ("columns of bytes", "columns of paths", "tar") else None
    return hr.Images(image or hr.Image(), source=pattern, **options)


def batches(data, frames, **options):
    given = {"batch_size": 4, "threads": 2, "output": "numpy", "shuffle": False} | options
    return list(hr.Loader(data, {"frames": frames}, **given))


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_images_of_each_sample_in_order(folder, source):
    data = SOURCES[source](folder)
    found = batches(data, field(source))
    assert np.concatenate([batch["frames_counts"] for batch in found]).tolist() == list(COUNTS)
    images = np.concatenate([batch["frames"] for batch in found])
    np.testing.assert_array_equal(images, np.concatenate(EXPECTED).transpose(0, 3, 1, 2))
    chosen = pickle.loads(pickle.dumps(data.select([3, 0, 3])))
    (batch,) = batches(chosen, field(source))
    assert batch["frames_counts"].tolist() == [12, 3, 12]
    again = np.concatenate([EXPECTED[2], EXPECTED[0], EXPECTED[2]])
    np.testing.assert_array_equal(batch["frames"], again.transpose(0, 3, 1, 2))


def test_a_dataset_reads_its_lists(folder):
    data = parquet(folder, "zstd", pa.list_)
    assert data.fields == {"frames": "list of bytes"}
    assert data[3]["frames"] == LISTS[3]
    assert data.column("frames") == LISTS
    assert data.fingerprint == parquet(folder, "none", pa.list_).fingerprint
    assert data.fingerprint != parquet(folder, "snappy", pa.binary).select(slice(1, None)).fingerprint


def test_torch_has_the_same_images(folder):
    mine = batches(hr.open({"frames": LISTS}), hr.Images(hr.Image(channels_last=False)), output="torch")
    theirs = batches(hr.open({"frames": LISTS}), hr.Images())
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(one["frames"].numpy(), other["frames"])
        assert one["frames"].is_contiguous()
        assert one["frames_counts"].tolist() == other["frames_counts"].tolist()


SOME = [files for files in LISTS if files]


def places(found):
    """The place in its list of each image of [N, count, C, H, W]."""
    return [(batch["frames"][:, :, 0, 0, 0] % 16).tolist() for batch in found]


def test_even_frames_are_the_middles_of_equal_segments():
    found = places(batches({"frames": SOME}, hr.Images(count=4), batch_size=8))[0]
    for row, files in zip(found, SOME, strict=True):
        assert row == [int((k + 0.5) * len(files) / 4) for k in range(4)]  # TSM's validation where there are enough


def test_segments_have_one_random_frame_each():
    clips = {"frames": [[encoded(0, place) for place in range(12)]] * 40}
    found = [np.concatenate(places(batches(clips, hr.Images(count=3, frames="segments"), seed=n))) for n in range(3)]
    for drawn in found:
        assert (drawn // 4 == [0, 1, 2]).all()
        assert len(set(map(tuple, drawn.tolist()))) > 10, "samples draw for themselves"
    assert not np.array_equal(found[0], found[1])
    counts = np.bincount(np.concatenate(found).reshape(-1), minlength=12)
    assert counts.min() > 10, "120 draws over the 4 frames of each segment"


def test_a_window_has_frames_at_a_stride():
    clips = {"frames": [[encoded(0, place) for place in range(12)]] * 60 + [[encoded(0, place) for place in range(3)]]}
    drawn = np.concatenate(places(batches(clips, hr.Images(count=4, frames="window", stride=3))))
    firsts = drawn[:60, 0]
    assert (drawn[:60] == firsts[:, None] + [0, 3, 6, 9]).all()
    assert set(firsts.tolist()) == {0, 1, 2}
    assert drawn[60].tolist() == [0, 2, 2, 2]


@pytest.mark.parametrize("options", [{"count": 3}, {}], ids=["fixed count", "all images"])
def test_one_window_a_sample_or_one_an_image(options):
    view = hr.RandomCrop(8, flip=0.5)
    for view_per in ("sample", "image"):
        (batch,) = batches({"frames": SOME}, hr.Images(view_per=view_per, **options), view=view, batch_size=8)
        images = batch["frames"]
        owners = np.repeat(np.arange(len(SOME)), [3] * len(SOME) if options else [len(files) for files in SOME])
        windows = images.reshape(-1, *images.shape[-3:])[:, 1:, 0]  # rows and columns of the source, in the first row
        for owner, files in enumerate(SOME):
            of_sample = {window.tobytes() for window in windows[owners == owner]}
            assert len(of_sample) == 1 if view_per == "sample" or len(files) == 1 else len(of_sample) > 1
        assert len({window.tobytes() for window in windows}) >= len(SOME) - 1


def test_augmentations_are_drawn_per_sample():
    clip = {"frames": [[encoded(2, 0)] * 4] * 6}
    for view_per, distinct in (("sample", 1), ("image", 4)):
        image = hr.Image(augment=hr.ColorJitter(0.8, 0.8))
        (batch,) = batches(clip, hr.Images(image, count=4, view_per=view_per), batch_size=6)
        assert [len({image.tobytes() for image in sample}) for sample in batch["frames"]] == [distinct] * 6


def test_frames_follow_the_view_of_a_single_image():
    """A window of the sample is the same for a field of one image and for all images of a list."""
    files = [[encoded(0, 1), encoded(0, 2)]] * 6
    fields = {"frames": hr.Images(count=2), "key": hr.Image()}
    loader = hr.Loader(
        {"frames": files, "key": [each[0] for each in files]}, fields, view=hr.RandomCrop(9, flip=0.5), batch_size=6
    )
    (batch,) = loader
    for place in range(2):
        np.testing.assert_array_equal(batch["frames"][:, place, 1:], batch["key"][:, 1:])


def damaged(counts=(3, 2, 4)):
    lists = [[encoded(sample, place) for place in range(count)] for sample, count in enumerate(counts)]
    lists[1][1] = lists[1][1][:60]
    return {"frames": lists}


def test_a_bad_image_makes_its_sample_bad():
    with pytest.raises(hr.errors.DecodeError, match="item 1") as caught:
        batches(damaged(), hr.Images(), on_error="raise")
    assert caught.value.field == "frames"
    assert caught.value.key == "1"


@pytest.mark.parametrize("options", [{"count": 2}, {}], ids=["fixed count", "all images"])
def test_a_bad_sample_is_replaced_with_all_its_images(options):
    loader = hr.Loader(damaged(), {"frames": hr.Images(**options)}, batch_size=3, max_bad=1.0, output="numpy")
    (batch,) = loader
    counts = batch.get("frames_counts", np.full(3, 2)).tolist()
    images = batch["frames"].reshape(-1, 3, HEIGHT, WIDTH)
    assert counts[0] == (2 if options else 3)
    assert counts[1] in ((2,) if options else (3, 4))
    assert len(images) == sum(counts)
    samples = (images[:, 0, 0, 0] // 16).tolist()
    assert samples[: counts[0]] == [0] * counts[0]
    assert set(samples[counts[0] : counts[0] + counts[1]]) <= {0, 2}
    assert samples[-counts[2] :] == [2] * counts[2]
    assert loader.stats().replaced == 1


def test_dropped_alpha_is_warned_of():
    file = io.BytesIO()
    alpha = np.linspace(0, 255, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH, 1).astype(np.uint8)
    Image.fromarray(np.concatenate([pixels(0, 0), alpha], axis=-1)).save(file, "PNG")
    with pytest.warns(UserWarning, match="alpha"):
        batches({"frames": [[encoded(0, 0), file.getvalue()]]}, hr.Images())


def test_a_sample_without_images_is_bad_only_for_a_count():
    with pytest.raises(hr.errors.DecodeError, match="none"):
        batches({"frames": LISTS}, hr.Images(count=2), on_error="raise")
    (batch,) = batches({"frames": [[], LISTS[0], []]}, hr.Images())
    assert batch["frames_counts"].tolist() == [0, 3, 0]
    found = batches({"frames": [[], [], LISTS[0]]}, hr.Images(), batch_size=2, view=hr.Resize((8, 8)))
    assert [batch["frames"].shape for batch in found] == [(0, 3, 8, 8), (3, 3, 8, 8)]


def test_formats_of_a_library_and_a_cache(tmp_path):
    """GIFs are decoded by Pillow; the second epoch comes from the cache."""
    files = []
    for sample in range(4):
        file = io.BytesIO()
        Image.fromarray(pixels(sample, 0)).convert("P").save(file, "GIF")
        files.append([file.getvalue(), encoded(sample, 3)])
    options = {"view": hr.Resize((12, 16)), "batch_size": 4, "output": "numpy", "cache": f"disk:{tmp_path}:40MB"}
    loader = hr.Loader({"frames": files, "key": [each[1] for each in files]}, {"frames": hr.Images()}, **options)
    (first,), (second,) = list(loader), list(loader)
    np.testing.assert_array_equal(first["frames"], second["frames"])
    assert loader.stats().cache.hits == 8
    plain = batches({"frames": files}, hr.Images(), view=hr.Resize((12, 16)))[0]["frames"]
    np.testing.assert_array_equal(first["frames"], plain)


REFUSED = {
    "numbers": ({"frames": [[1, 2]]}, hr.Images()),
    "one image a sample": ({"frames": [LISTS[0][0]]}, hr.Images()),
    "no column": ({"frames": LISTS}, hr.Images(source="clips")),
    "no match": ({"frames": LISTS}, hr.Images(source="clips.*")),
    "not JSON": ({"frames": ["[1", "x"]}, hr.Images()),
    "no images": ({"frames": [[], []], "label": [1, 2]}, hr.Images()),
    "a field of one image": ({"frames": LISTS}, hr.Image()),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_columns_are_refused(case, folder):
    data, frames = REFUSED[case]
    with pytest.raises(hr.errors.UsageError, match="expected"):
        hr.Loader(hr.open(data, root=folder), {"frames": frames}, batch_size=2)


@pytest.mark.parametrize(
    "options",
    [
        {"map": lambda sample, rng: sample},
        {"batch": hr.MixUp()},
        {"view": hr.RandomScale((8, 16))},
        {"workers": "ray"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_arguments_that_lists_do_not_go_with_are_refused(options):
    data = {"frames": LISTS, "label": [0] * len(LISTS)}
    with pytest.raises(hr.errors.UsageError, match=next(iter(options))):
        hr.Loader(data, {"frames": hr.Images(), "label": hr.Label()}, batch_size=2, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"count": 0},
        {"frames": "all", "count": 2},
        {"frames": "segments"},
        {"stride": 2, "count": 2},
        {"image": hr.Image(source="x")},
        {"image": hr.Image(copies=2)},
        {"image": hr.Image(scale=2)},
        {"image": hr.Mask()},
        {"view_per": "batch"},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(options):
    with pytest.raises(hr.errors.UsageError):
        hr.Images(**options)


def test_the_pages_examples(folder, tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    (tmp_path / "frames").symlink_to(folder)
    (folder / "clip1" / "only.png").write_bytes(encoded(0, 0))
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "photos" / name).write_bytes(encoded(0, 1))
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in examples("several-images.md"):
        exec(example, names)
        (batch,) = names["loader"]
        if "frames" in batch:
            assert batch["frames"].shape == (2, 8, 3, 224, 224)
    (folder / "clip1" / "only.png").unlink()
    assert batch["images"].shape == (2, 3, 224, 224)
    with_images = batch["images_counts"].tolist().index(2)
    assert batch["images_counts"].tolist() == [2, 0][:: 1 if with_images == 0 else -1]
    assert batch["text"]["ids"].shape == (1, 4096)


@pytest.mark.parametrize("source", ["jsonl", "parquet, large lists, zstd", "bytes", "columns of bytes"])
def test_a_pack_has_the_same_lists(folder, tmp_path, source):
    data = SOURCES[source](folder)
    pack(data, tmp_path / "pack", PackOptions())
    packed = hr.open(tmp_path / "pack")
    assert packed.columns.keys() >= {"frames.0", "frames.11"}
    for mine, theirs in zip(batches(packed, hr.Images(source="frames.*")), batches(data, field(source)), strict=True):
        np.testing.assert_array_equal(mine["frames"], theirs["frames"])
        assert mine["frames_counts"].tolist() == theirs["frames_counts"].tolist()
    if source != "columns of bytes":
        assert len(batches(packed, hr.Images())) == 2, "the field of the source reads its pack"
