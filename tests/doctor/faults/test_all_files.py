"""Equal bytes under two names are found among all files that datasets list; other files raise no alarm."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from made_reports import made_session
from observed_runs import CASES, headrace
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler, WeightedRandomSampler

from headrace.doctor.explain.look import LeafPath
from headrace.doctor.faults import compare_all, fault_pictures, read_listings
from headrace.doctor.faults.all_files import Comparison
from headrace.doctor.probe.listed_files import write_listed

COUNT = 40


class Pictures(Dataset):
    """Pictures of a folder."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.rglob("*.bmp"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return np.asarray(Image.open(self.files[index]))


class Manifest(Dataset):
    """Pictures and masks that a CSV file names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with (folder / "list.csv").open() as file:
            self.rows = list(csv.reader(file))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        name, label = self.rows[index]
        both = [np.asarray(Image.open(self.folder / kind / f"{name}.bmp")) for kind in ("images", "masks")]
        return *both, int(label)


class Members(Dataset):
    """Members of a tar."""

    def __init__(self, tar: Path, names: list[str]) -> None:
        self.tar, self.names = tar, names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        with tarfile.open(self.tar) as archive:
            return np.asarray(Image.open(archive.extractfile(self.names[index] + ".bmp")))


class Stream(IterableDataset):
    """Pictures that a list names, in its order."""

    def __init__(self, folder: Path) -> None:
        self.root, self.names = folder, sorted(path.name for path in folder.glob("*.bmp"))

    def __iter__(self) -> Iterator[Any]:
        yield from (np.asarray(Image.open(self.root / name)) for name in self.names)


def shards(folder: Path, name: str, copies: dict[int, int]) -> Any:
    """Return a webdataset pipeline over two tars; `copies` are other numbers of pictures, by sample."""
    webdataset = pytest.importorskip("webdataset")
    for shard in range(2):
        with tarfile.open(folder / f"{name}-{shard}.tar", "w") as archive:
            for number in range(shard, COUNT, 2):
                source = copies.get(number, number)
                picture = (folder / f"{name}/{source % 2}/{source:03}.bmp").read_bytes()
                for end, data in (("bmp", picture), ("txt", f"sample {number}".encode())):
                    info = tarfile.TarInfo(f"{number:03}.{end}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    urls = [str(folder / f"{name}-{shard}.tar") for shard in range(2)]
    stages = webdataset.WebDataset(urls, shardshuffle=False, empty_check=False)
    return stages.map(lambda raw: np.asarray(Image.open(io.BytesIO(raw["bmp"]))))


class Unnamed(Dataset):
    """Pictures whose names the dataset does not hold."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return np.asarray(Image.open(f"{index:03}.bmp"))


def picture(path: Path, number: int, value: int | None = None) -> Path:
    """Write a picture; all have one size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels if value is None else np.full_like(pixels, value)).save(path)
    return path


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Folders of different pictures of equal size."""
    for number in range(COUNT):
        picture(tmp_path / "train" / str(number % 2) / f"{number:03}.bmp", number)
        picture(tmp_path / "val" / str(number % 2) / f"{number:03}.bmp", COUNT + number)
    return tmp_path


def compared(
    folder: Path, *datasets: Dataset | DataLoader, labels: Mapping[LeafPath, Sequence[Any]] = MappingProxyType({})
) -> Comparison:
    session = made_session()
    loaders = [one if isinstance(one, DataLoader) else DataLoader(one, 4) for one in datasets]
    write_listed(loaders, str(folder / "listed"))
    return compare_all(session, session.trainers[0], read_listings(folder / "listed"), labels, lambda text: None)


def codes(found: Comparison) -> list[tuple[str, str]]:
    return [(one.code, one.certainty) for one in found.faults]


def test_files_of_equal_size_with_other_bytes(folders: Path) -> None:
    found = compared(folders, Pictures(folders / "train"), Pictures(folders / "val"))
    assert found.faults == []
    assert found.text.startswith("80 files were compared: Pictures of the training, and 1 other loader")


def test_copies_in_a_folder_of_training(folders: Path) -> None:
    shutil.copy(folders / "train/1/003.bmp", folders / "train/0/copy.bmp")
    shutil.copy(folders / "train/1/005.bmp", folders / "train/0/more.bmp")
    found = compared(folders, Pictures(folders / "train"))
    assert codes(found) == [("duplicate-files", "unless intended")]
    assert "2 samples of 42 have the same bytes" in found.faults[0].evidence
    assert "(42 files were compared)" in found.faults[0].evidence
    assert f"{folders}/train/0/copy.bmp = {folders}/train/1/003.bmp" in found.faults[0].evidence
    assert found.faults[0].files[:2] == [f"{folders}/train/0/copy.bmp", f"{folders}/train/1/003.bmp"]
    assert "No other loader was found" in found.text


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("0/again.bmp", ["unless intended"]),
        ("1/again.bmp", ["certain"]),
        ("both", ["certain", "unless intended"]),
    ],
)
def test_copies_in_a_class_and_across_classes(place: str, found: list[str], folders: Path) -> None:
    """A class may be shown more often on purpose, but no picture has two classes."""
    for name in ("0/again.bmp", "1/again.bmp") if place == "both" else (place,):
        shutil.copy(folders / f"train/0/00{4 if name[0] == '0' else 6}.bmp", folders / "train" / name)
    training = Pictures(folders / "train")
    classes = [path.parent.name for path in training.files]
    keys = [path.name + path.parent.name for path in training.files]
    faults = compared(folders, training, labels={(1,): classes, ("key",): keys}).faults
    assert [(one.code, one.certainty) for one in faults] == [("duplicate-files", certainty) for certainty in found]
    assert ["and other labels" in one.evidence for one in faults] == [one == "certain" for one in found]
    assert all("1 samples of" in one.evidence for one in faults)


def test_a_path_that_is_listed_several_times(folders: Path) -> None:
    """As a list with a part of the samples once more, to balance classes, and a sampler with replacement."""
    training = Pictures(folders / "train")
    training.files += training.files[:10] * 2
    labels = {(1,): [path.parent.name for path in training.files]}
    assert compared(folders, training, Pictures(folders / "val"), labels=labels).faults == []
    sampled = DataLoader(training, 4, sampler=WeightedRandomSampler([1.0] * 59 + [9.0], 60))
    assert compared(folders, sampled, Pictures(folders / "val")).faults == []


def test_a_path_of_training_and_evaluation(folders: Path) -> None:
    training, held_out = Pictures(folders / "train"), Pictures(folders / "val")
    held_out.files += training.files[:2]
    found = compared(folders, training, held_out)
    assert [one.code for one in found.faults] == ["leaked-split"]
    assert found.faults[0].files == [str(one) for one in training.files[:2] for _ in range(2)]


def test_a_copy_in_the_evaluation(folders: Path) -> None:
    shutil.copy(folders / "train/1/003.bmp", folders / "val/1/other.bmp")
    found = compared(folders, Pictures(folders / "train"), Pictures(folders / "val"))
    assert codes(found) == [("leaked-split", "unless intended")]  # no pass has shown that the loader evaluates
    assert "Pictures, which this run did not use, takes 1 of its 41 samples" in found.faults[0].evidence


def test_copies_of_a_black_picture(folders: Path) -> None:
    for name in ("train/0/black.bmp", "train/1/black.bmp", "val/0/black.bmp"):
        picture(folders / name, 0, value=0)
    assert compared(folders, Pictures(folders / "train"), Pictures(folders / "val")).faults == []


@pytest.mark.parametrize(("masks", "found"), [("copied", ["duplicate-files"]), ("own", [])])
def test_a_manifest(masks: str, found: list[str], tmp_path: Path) -> None:
    """Both files of a sample are equal, or the image alone: two objects of one image."""
    for number in range(COUNT):
        picture(tmp_path / f"images/{number}.bmp", number)
        picture(tmp_path / f"masks/{number}.bmp", 0, value=number % 2)
    shutil.copy(tmp_path / "images/3.bmp", tmp_path / "images/30.bmp")
    shutil.copy(tmp_path / "masks/3.bmp", tmp_path / "masks/30.bmp")
    if masks == "own":
        picture(tmp_path / "masks/30.bmp", 1)
    (tmp_path / "list.csv").write_text("".join(f"{number},{number % 3}\n" for number in range(COUNT)))
    assert [one.code for one in compared(tmp_path, Manifest(tmp_path)).faults] == found


@pytest.mark.parametrize("copies", [0, 1])
def test_members_of_a_tar(copies: int, folders: Path) -> None:
    with tarfile.open(folders / "all.tar", "w") as archive:
        for number in range(COUNT):
            source = 3 if copies and number == 30 else number
            data = (folders / f"train/{source % 2}/{source:03}.bmp").read_bytes()
            info = tarfile.TarInfo(f"{number:03}.bmp")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    names = [f"{number:03}" for number in range(COUNT)]
    training, other = Members(folders / "all.tar", names[:25]), Members(folders / "all.tar", names[25:])
    found = compared(folders, training, other)
    assert codes(found) == [("leaked-split", "unless intended")] * copies
    assert found.text.startswith("40 files were compared")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset closes tars late
@pytest.mark.parametrize("copies", [{}, {30: 3}])
def test_shards(copies: dict[int, int], folders: Path) -> None:
    """Texts next to the pictures differ, and no sample decodes them."""
    found = compared(folders, shards(folders, "train", copies), shards(folders, "val", {}))
    assert [one.code for one in found.faults] == ["duplicate-files"] * len(copies)
    assert found.text.startswith("80 files were compared")


def table(folder: Path, name: str, files: list[Path | None], form: str) -> Any:
    """Return a Hugging Face table of pictures: their paths, or their bytes in an Arrow file."""
    datasets = pytest.importorskip("datasets")
    if form == "paths":
        made = datasets.Dataset.from_dict({"image": list(map(str, files))})
    else:
        embedded = [None if file is None else {"bytes": file.read_bytes(), "path": file.name} for file in files]
        memory = datasets.Dataset.from_dict({"image": embedded})
        memory.save_to_disk(folder / name)
        made = memory if form == "memory" else datasets.load_from_disk(folder / name)
    made = made.cast_column("image", datasets.Image())
    made.set_transform(lambda rows: {"image": [one and np.asarray(one) for one in rows["image"]]})
    return made


@pytest.mark.parametrize("form", ["paths", "bytes"])
@pytest.mark.parametrize("copies", [0, 1])
def test_tables_of_pictures(form: str, copies: int, folders: Path) -> None:
    shutil.copy(folders / "train/1/003.bmp", folders / "train/0/copy.bmp")
    shutil.copy(folders / "train/1/005.bmp", folders / "val/0/copy.bmp")
    both = [sorted(path for path in (folders / name).rglob("*.bmp")) for name in ("train", "val")]
    files = [path for path in both[0] if copies or path.name != "copy.bmp"]
    others = [path for path in both[1] if copies or path.name != "copy.bmp"]
    found = compared(folders, table(folders, "a", files, form), table(folders, "b", others, form))
    assert [one.code for one in found.faults] == ["duplicate-files", "leaked-split"] * copies
    assert found.text.startswith(f"{80 + 2 * copies} files were compared: Dataset of the training, and 1 other loader")
    pictures = fault_pictures(found.faults, None, {})
    assert len(pictures) == 2 * copies
    if copies:
        assert "1 samples of 41 have the same bytes" in found.faults[0].evidence
        assert all("/003.bmp" in one or "/copy.bmp" in one for one in found.faults[0].files)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("overlap", [0, 2])
def test_parts_of_a_table(shuffle: bool, overlap: int, folders: Path) -> None:
    """Rows that follow each other, or others; rows that a sampler repeats are no copies."""
    whole = table(folders, "a", [*sorted((folders / "train").rglob("*.bmp")), None], "bytes")
    rows = np.random.default_rng(0).permutation(COUNT) if shuffle else np.arange(COUNT)
    train = whole.select([*rows[: 25 + overlap], *rows[: 5 * shuffle]])
    found = compared(folders, train, whole.select([*rows[25:], *[COUNT] * (not shuffle)]))
    assert [one.code for one in found.faults] == ["leaked-split"] * bool(overlap)
    assert all(f"takes {overlap} of its {15 + (not shuffle)} samples" in one.evidence for one in found.faults)
    assert found.text.startswith("40 files were compared")


def test_a_table_in_memory(folders: Path) -> None:
    """No file holds its bytes after the run."""
    training = table(folders, "a", sorted((folders / "train").rglob("*.bmp")), "memory")
    assert compared(folders, training).text.startswith("Not all files were compared")


def test_files_that_are_gone(folders: Path) -> None:
    training = Pictures(folders / "train")
    training.files[3].unlink()
    assert "39 files were compared" in (text := compared(folders, training).text)
    assert text.endswith("1 more file: empty or not found.")


def test_a_stream(folders: Path) -> None:
    shutil.copy(folders / "train/1/003.bmp", folders / "train/1/copy.bmp")
    assert [one.code for one in compared(folders, Stream(folders / "train/1")).faults] == ["duplicate-files"]


@pytest.mark.parametrize("split", [Subset, lambda data, rows: DataLoader(data, 4, sampler=SubsetRandomSampler(rows))])
@pytest.mark.parametrize("overlap", [0, 3])
def test_parts_of_one_dataset(split: Callable[..., Any], overlap: int, folders: Path) -> None:
    data, cut = Pictures(folders / "train"), COUNT // 2
    found = compared(folders, split(data, range(cut + overlap)), split(data, range(cut, COUNT)))
    assert [one.code for one in found.faults] == ["leaked-split"] * bool(overlap)
    assert all(f"takes {overlap} of its 20 samples" in one.evidence for one in found.faults)


def test_a_loader_of_the_training_samples(folders: Path) -> None:
    training, again = Pictures(folders / "train"), Pictures(folders / "train")
    assert codes(compared(folders, training, DataLoader(training, 8))) == []
    assert codes(compared(folders, training, again)) == [("leaked-split", "unless intended")]
    assert codes(compared(folders, training, again, Pictures(folders / "val"))) == []


def test_names_that_are_not_known(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders / "train/0")
    for number in range(1, COUNT, 2):
        shutil.copy(f"../1/{number:03}.bmp", ".")
    found = compared(folders, Unnamed(), Pictures(folders / "val"))
    assert found.faults == []
    assert found.text == "Not all files were compared: no values of the training's dataset name its files."
    found = compared(folders, Pictures(folders / "val"), Unnamed())
    assert found.text.endswith("of the training. No values name the files of Unnamed.")


SCRIPT = (
    f"""
import sys
sys.path.append({str(CASES)!r})
"""
    + """
from pathlib import Path
import numpy as np, torch
from PIL import Image
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset

class Pictures(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).rglob("*.bmp"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return torch.from_numpy(np.array(Image.open(self.files[index]))).float()

training, held_out = (DataLoader(Pictures(f"{sys.argv[1]}/{name}"), 4, shuffle=True) for name in ("train", "val"))
weight = torch.nn.Parameter(torch.zeros(()))
optimizer = Descent([weight], 1e-6)
for _ in range(9):
    for batch in training:
        optimizer.zero_grad()
        (batch.mean() * weight).backward()
        optimizer.step()
    with torch.no_grad():
        for batch in held_out:
            batch.mean()
"""
)


@pytest.mark.parametrize(
    ("steps", "leak", "status"),
    [(5, "unless intended", 0), pytest.param(25, "certain", 101, marks=pytest.mark.long)],
)
def test_a_script(steps: int, leak: str, status: int, folders: Path) -> None:
    """Copies that the first five steps need not meet; the evaluation is known as such after an epoch."""
    shutil.copy(folders / "train/1/003.bmp", folders / "train/0/copy.bmp")
    shutil.copy(folders / "train/1/005.bmp", folders / "val/0/copy.bmp")
    script, document = folders / "train.py", folders / "session.json"
    script.write_text(SCRIPT)
    options = ("doctor", "--check", "data", "--all", "--steps", str(steps), "--json", str(document))
    options = (*options, "--html", str(folders / "page.html"), "--pictures", str(folders / "pictures"))
    ran = headrace(*options, "--", sys.executable, str(script), str(folders), tries_loader=True)
    assert ran.returncode == status, ran.stderr
    faults = json.loads(document.read_text())["faults"]
    assert [(one["code"], one["certainty"]) for one in faults] == [
        ("duplicate-files", "unless intended"),
        ("leaked-split", leak),
    ]
    assert all("82 files were compared" in one["evidence"] for one in faults)
    assert sorted(one.name for one in (folders / "pictures").iterdir()) == ["duplicate-files.png", "leaked-split.png"]
    assert (folders / "page.html").read_text().count('<img src="data:image/png;base64,') == 2
    assert "reading the first bytes of 82 files of equal size, 52 kB" in ran.stderr
