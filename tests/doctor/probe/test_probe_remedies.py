"""Each remedy in this very process: it is applied, and what comes out is what came out without it."""

from __future__ import annotations

import io
import re
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from probing import notes, probed, records, run_probed
from torch.utils.data import DataLoader, Dataset

from headrace.doctor.probe import remedies
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.remedies import change
from headrace.tools.demo_dataset import natural_image


@contextmanager
def injected(folder: Path, **changes: Any) -> Iterator[Probe]:
    """A probe with these changes. None of its hooks may have failed."""
    with probed(folder, changes=changes) as probe:
        yield probe
    assert "hook-off" not in notes(folder), notes(folder)


def applied(folder: Path, key: str) -> tuple[int, list[str]]:
    """How often in all, and in which ways."""
    found = [record for record in records(folder, "applied") if record[2] == key]
    return max((count for _, _, _, count, _ in found), default=0), [text for *_, text in found if text]


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return index


def seen(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


# DataLoaders.


def test_a_loader_is_changed_by_the_order_of_first_iteration(tmp_path: Path) -> None:
    with injected(tmp_path, loaders={"1": {"num_workers": 2, "prefetch_factor": 4}}):
        never, first = DataLoader(Numbers(), batch_size=3), DataLoader(Numbers(), batch_size=3)
        second = DataLoader(Numbers(), batch_size=3)
        batches = [seen(first), seen(first), seen(second), seen(second)]
        assert batches == [batches[0]] * 4
        assert [loader.num_workers for loader in (never, first, second)] == [0, 0, 2]
        assert second.prefetch_factor == 4
    count, (text,) = applied(tmp_path, "loaders")
    assert (count, re.findall(r"\w+ -> \d", text)) == (1, ["0 -> 2", "None -> 4"])


@pytest.mark.filterwarnings("ignore:.set_vital. is deprecated")  # torchdata calls it
@pytest.mark.long
def test_loaders_that_a_framework_makes_anew_are_changed(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    with injected(tmp_path, loaders={"0": {"num_workers": 1}, "1": {"num_workers": 1}}):
        prepared = accelerate.Accelerator(cpu=True).prepare(DataLoader(Numbers(), batch_size=3))
        resumable = stateful.StatefulDataLoader(Numbers(), batch_size=3)
        assert seen(prepared) == seen(resumable) == seen(DataLoader(Numbers(), batch_size=3))
        assert (prepared.num_workers, resumable.num_workers) == (1, 1)


@pytest.mark.parametrize(
    ("made", "wanted", "left"),
    [
        (
            {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 5, "timeout": 9},
            {"num_workers": 0},
            {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None, "timeout": 0},
        ),
        ({}, {"num_workers": 3}, {"num_workers": 3, "prefetch_factor": 2}),
        ({"num_workers": 1, "prefetch_factor": 7}, {"num_workers": 3}, {"num_workers": 3, "prefetch_factor": 7}),
        ({"num_workers": 1}, {"persistent_workers": True}, {"num_workers": 1, "persistent_workers": True}),
        ({}, {"pin_memory": True}, {"pin_memory": True, "num_workers": 0}),
    ],
)
def test_arguments_go_together_as_in_torch(made: dict[str, Any], wanted: dict[str, Any], left: dict[str, Any]) -> None:
    loader: Any = DataLoader(Numbers(), **made)
    change(loader, wanted)
    assert {name: getattr(loader, name) for name in left} == left


# Archives.


def put(tar: tarfile.TarFile, name: str, data: bytes, **attributes: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for attribute, value in attributes.items():
        setattr(member, attribute, value)
    tar.addfile(member, io.BytesIO(data))


@pytest.fixture(params=[tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT], ids=["gnu", "pax", "ustar"])
def odd_tar(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w", format=request.param) as tar:
        put(tar, "a/", b"", type=tarfile.DIRTYPE)
        put(tar, "a/1.bin", b"first")
        put(tar, "./b.bin", b"dotted")
        put(tar, "a/" + "long" * 20 + "/" + "x" * 60 + ".bin", b"long")
        put(tar, "a/1.bin", b"the last of that name counts")
        put(tar, "link", b"", type=tarfile.SYMTYPE, linkname="a/1.bin")
        put(tar, "hard", b"", type=tarfile.LNKTYPE, linkname="a/1.bin")
    return path


LONG = "a/" + "long" * 20 + "/" + "x" * 60 + ".bin"
NAMES = ["a", "a/", "a/1.bin", "./b.bin", "b.bin", "link", "hard", "nothing", LONG]


def contents(path: Path) -> list[Any]:
    """All that a dataset could ask of it."""
    with tarfile.open(path) as tar:
        found: list[Any] = [(name, _bytes(tar, name)) for name in NAMES]
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        found += [(one.name, one.size, one.type, one.linkname, one.offset_data, _bytes(tar, one)) for one in members]
        found += [tar.getnames(), [one.name for one in tar], tar.next(), _bytes(tar, "a/1.bin")]
    with tarfile.open(path) as tar:
        found += [[(one.name, _bytes(tar, one)) for one in tar]]
    return found


def _bytes(tar: tarfile.TarFile, member: Any) -> Any:
    try:
        file = tar.extractfile(member)
    except KeyError as error:
        return str(error)
    return None if file is None else (file.seek(1), file.read(3), file.seek(0), file.read())


@pytest.mark.one_in(3)
def test_an_index_answers_as_tarfile_does(odd_tar: Path, tmp_path: Path) -> None:
    plain = contents(odd_tar)
    with injected(tmp_path, indexed_tar=True):
        assert contents(odd_tar) == plain
    assert applied(tmp_path, "indexed_tar")[0] > 5
    assert [path.name for path in odd_tar.parent.glob("odd.tar*")] == ["odd.tar"]  # nothing beside the user's file


def test_workers_find_the_index_imported(tmp_path: Path) -> None:
    script = "import torch.utils.data, sys; print('headrace.data' in sys.modules)"
    ran = run_probed([sys.executable, "-c", script], tmp_path, changes={"indexed_tar": True})
    assert ran.stdout == "True\n", ran.stderr


@pytest.mark.long
def test_batches_are_prefetched_where_a_device_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is stood in for by the CPU."""
    plain = seen(DataLoader(Numbers(), batch_size=3))
    with injected(tmp_path, device_prefetch=True):
        assert seen(DataLoader(Numbers(), batch_size=3)) == plain
        monkeypatch.setattr(remedies, "cuda_device", lambda _: "cpu")
        loader = DataLoader(Numbers(), batch_size=3)
        assert type(iter(loader)).__name__ == "PrefetchIterator"
        assert seen(loader) == plain
        with torch.no_grad():
            assert type(iter(loader)).__name__ == "_SingleProcessDataLoaderIter"
    count, texts = applied(tmp_path, "device_prefetch")
    assert (count, len(texts), texts[-1]) == (2, 2, "to cpu")


# A Loader in place of a DataLoader.

ADOPTED = """
import headrace as hr

def make_loader(batch_size=4):
    return hr.Loader({folder!r}, {{"image": hr.Image(), "label": hr.Label()}}, view=hr.Resize((16, 16)),
                     batch_size=batch_size, output="torch")

def batches(loader):
    for batch in loader:
        yield batch["image"], batch["label"]
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve JPEGs in two classes."""
    root = tmp_path_factory.mktemp("classes")
    for number in range(12):
        path = root / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(natural_image(32, 24, seed=number)).save(path)
    return root


def test_a_loader_takes_the_place_of_the_dataloader_that_is_named(tmp_path: Path, classes: Path) -> None:
    change = {"module": ADOPTED.format(folder=str(classes)), "loaders": [0]}
    with injected(tmp_path, loader=change):
        trained, evaluated = DataLoader(Numbers(), batch_size=4), DataLoader(Numbers(), batch_size=6)
        for _ in range(2):
            (images, labels), *others = list(trained)
            assert (tuple(images.shape), images.dtype) == ((4, 3, 16, 16), torch.uint8)
            assert len(others) == 2
            assert {int(label) for label in labels} <= {0, 1}
            assert seen(evaluated) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert applied(tmp_path, "loader") == (2, [])
    passes = records(tmp_path, "pass")
    assert [record[2] for record in passes] == [0, 1, 0, 1]
