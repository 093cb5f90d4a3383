"""Streams and tables whose samples the Loader takes from the files that hold them."""

from __future__ import annotations

import io
import json
import random
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import webdataset
from made_sessions import MadeRun, made_session
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

from headrace.doctor.adoption import Adoption, adopt
from headrace.doctor.adoption.comparison import verified
from headrace.doctor.explain.look import Look, read_look
from headrace.doctor.measure import main_view_of
from headrace.doctor.probe.look.raw_samples import samples_of
from headrace.doctor.probe.look.value_look import look_at_values

COUNT = 24
SIZE = (72, 96)
CLOSED_LATE = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
"""webdataset leaves its tars to the garbage collector."""


def picture(number: int) -> Image.Image:
    state = np.random.default_rng(number)
    coarse = state.integers(0, 256, (10, 14, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((140 + number, 110), Image.Resampling.BICUBIC)


def png(number: int) -> bytes:
    file = io.BytesIO()
    picture(number).save(file, "PNG")
    return file.getvalue()


def resized(image: Image.Image) -> torch.Tensor:
    pixels = np.array(image.convert("RGB").resize(SIZE[::-1], Image.Resampling.BILINEAR))
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255


def cropped(image: Image.Image) -> torch.Tensor:
    left, top = random.randint(0, image.width - 96), random.randint(0, image.height - 72)
    return torch.from_numpy(np.array(image.convert("RGB").crop((left, top, left + 96, top + 72))))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Tars of eight samples, each of which begins its keys anew."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(3):
        with tarfile.open(folder / f"train-{shard:03d}.tar", "w") as tar:
            for place in range(8):
                number = shard * 8 + place
                meta = {"id": number, "made": {"by": f"author {number % 5}"}}
                files = {"png": png(number), "cls": str(number % 3).encode(), "txt": f"scene {number}".encode()}
                for end, data in {**files, "json": json.dumps(meta).encode()}.items():
                    info = tarfile.TarInfo(f"{place:05d}.{end}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return sorted(map(str, folder.glob("*.tar")))


def adopted(loader: Any, folder: Path) -> tuple[Look, Adoption]:
    """Look at a loader, and return what a run that has it would be with Headrace's."""
    look_at_values(loader, str(folder / "look"))
    look, session = read_look(folder / "look"), made_session(folder / "run", MadeRun(facts={"described": {}}))
    view = main_view_of(session)
    assert view is not None
    found = adopt(session, view, look, folder)
    assert found is not None
    return look, found


def compared(look: Look, found: Adoption) -> dict[str, str]:
    """Compare the samples of the module with those of the look."""
    module: dict[str, Any] = {"__name__": "adopted"}
    exec(str(found.module_text), module)
    return verified(look, module["make_loader"], module["batches"])


@CLOSED_LATE
def test_members_of_a_pipelines_tars_are_columns(shards: list[str], tmp_path: Path) -> None:
    pipeline = (
        webdataset.WebDataset(shards, shardshuffle=3, empty_check=False)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("png", "cls", "txt", "json", "json")
        .map_tuple(resized, int, str, lambda meta: meta["id"], lambda meta: meta["made"]["by"])
        .batched(4, partial=False)
    )
    look, found = adopted(DataLoader(pipeline, batch_size=None), tmp_path)
    recipe, text = found.recipe, str(found.module_text)
    assert (recipe.degree, recipe.shuffle, recipe.drop_last) == ("exact", True, True)
    (part,) = recipe.parts
    assert part.certainty == "differs"
    assert "1000" in part.note
    assert 'FILES = "' in text
    assert "train-{000..002}.tar" in text
    assert re.findall(r'"([^"]+)"', text.partition("columns=[")[2].partition("]")[0]) == [
        "png", "cls", "txt", "json.id", "json.made.by",
    ]  # fmt: skip
    assert recipe.fields["label"] == "hr.Label(source='cls')"
    assert "MANIFEST" not in text
    assert compared(look, found) == {"0": "same", "1": "same", "2.0": "same", "3": "same", "4.0": "same"}
    assert look.opened is not None
    assert (look.opened.buffer, look.opened.drops, look.opened.epoch) == (1000, True, None)
    assert len({each.index for each in look.samples}) == 8  # of all three tars


@CLOSED_LATE
def test_a_pipeline_that_selects_draws_tars_and_has_an_epoch_of_its_own(shards: list[str], tmp_path: Path) -> None:
    pipeline = (
        webdataset.WebDataset([f"pipe:cat {one}" for one in shards], resampled=True, shardshuffle=False)
        .decode("rgb8")
        .select(lambda sample: sample["cls"] != 1)
        .map(lambda sample: {"image": cropped(Image.fromarray(sample["png"])), "target": sample["cls"]})
        .with_epoch(10)
    )
    look, found = adopted(DataLoader(pipeline, batch_size=2), tmp_path)
    certain = {part.part: part.certainty for part in found.recipe.parts}
    assert certain.pop("__key__") == "python"  # of webdataset's own map
    assert certain == {"resampled": "differs", "with_epoch(10)": "differs", "<lambda>": "check"}
    assert look.opened is not None
    assert (look.opened.files, look.opened.epoch, look.opened.is_resampled) == (tuple(shards), 10, True)
    assert look.opened.selects == ("<lambda>",)
    assert 1 not in look.columns["cls"]
    assert found.recipe.view == "hr.RandomCrop((72, 96))"
    assert set(found.recipe.left) == {"__key__"}
    seen = {path: how for path, how in compared(look, found).items() if path != "__key__.0"}
    assert seen == {"image": "drawn: 8 samples compared", "target": "same"}


class Listed(IterableDataset[Any]):
    """Files of a list, in an order that the generator draws, with windows that it draws too."""

    def __init__(self, root: Path, make: Callable[[Image.Image], torch.Tensor]) -> None:
        self.root, self.make = root, make
        self.samples = [(f"{number}.png", number % 3) for number in range(COUNT)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for name, label in random.sample(self.samples, COUNT):
            yield {"image": self.make(Image.open(self.root / name)), "label": label}


@pytest.mark.long
def test_a_stream_of_the_scripts_own_stays_as_it_is(tmp_path: Path) -> None:
    for number in range(COUNT):
        (tmp_path / f"{number}.png").write_bytes(png(number))
    _, found = adopted(DataLoader(Listed(tmp_path, resized), batch_size=4), tmp_path)
    assert (found.recipe.degree, found.module_text) == ("no", None)
    assert "is a stream" in found.recipe.reason


@pytest.mark.long
def test_a_table_of_hugging_face_is_opened_from_its_own_files(tmp_path: Path) -> None:
    rows = {"image": [{"bytes": png(n), "path": None} for n in range(COUNT)], "label": [n % 3 for n in range(COUNT)]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    table = datasets.load_from_disk(str(tmp_path / "saved")).shuffle(seed=1).select(range(18))
    table.set_transform(lambda batch: {"pixels": [resized(one) for one in batch["image"]], "target": batch["label"]})
    look, found = adopted(DataLoader(table, batch_size=4), tmp_path)
    recipe = found.recipe
    assert (look.length, recipe.degree) == (18, "exact")
    assert recipe.columns["row"] == table._indices.column(0).to_pylist()
    assert "hr.Image(source=" in recipe.fields["pixels"]
    assert compared(look, found) == {"pixels": "same", "target": "same"}


SELECTIONS = {
    "whole": (lambda table: table, None),
    "slice": (lambda table: table.select(range(5, 12)), list(range(5, 12))),
    "indices": (lambda table: table.select([3, 1]), [3, 1]),
    "shuffled slice": (lambda table: table.select(range(2, 18)).select([9, 0]), [11, 2]),
    "last part of a split": (lambda table: table.train_test_split(0.25, shuffle=False)["test"], list(range(15, 20))),
    "slices": (
        lambda table: datasets.concatenate_datasets([table.select(range(15, 20)), table.select(range(2))]),
        [*range(15, 20), 0, 1],
    ),
}


@pytest.mark.parametrize("kind", SELECTIONS)
def test_rows_of_a_table_are_those_of_its_files(tmp_path: Path, kind: str) -> None:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    content = {"image": [{"bytes": b"%d" % row, "path": None} for row in range(20)], "label": list(range(20))}
    datasets.Dataset.from_dict(content, features=features).save_to_disk(tmp_path / "table", num_shards=3)
    select, expected = SELECTIONS[kind]
    selected = select(datasets.load_from_disk(str(tmp_path / "table")))
    found = samples_of(selected, len(selected))
    tables = [datasets.Dataset.from_file(path).remove_columns("image") for path in found.opened["files"]]
    in_files = [row["label"] for table in tables for row in table]
    rows = found.opened.get("rows", range(len(in_files)))
    assert [in_files[row] for row in rows] == (list(range(20)) if expected is None else expected)
    assert [int(found.raw(at)["image"]) for at in range(len(selected))] == [in_files[row] for row in rows]
    assert ("rows" in found.opened) == (expected is not None)
