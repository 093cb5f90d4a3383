"""Arguments in the wrong place, and Loaders where they cannot go: the error names what to write instead."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from torch.utils.data import DataLoader

import headrace as hr
from headrace.errors import UnknownArgumentError, UsageError, warn_caller

VIEW = hr.Resize((8, 8))


@pytest.fixture
def data(tmp_path: Path) -> hr.Dataset:
    (tmp_path / "a").mkdir()
    for number in range(4):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / "a" / f"{number}.png")
    return hr.open(tmp_path)


MISPLACED: dict[str, tuple[Callable[[hr.Dataset], object], str]] = {
    "flip": (lambda data: hr.Loader(data, augment=hr.RandomHorizontalFlip(), view=VIEW, batch_size=2), r"view=.*flip="),
    "flip of an image": (lambda _: hr.Image(augment=hr.RandomHorizontalFlip()), r"view=.*flip="),
    "jitter": (
        lambda data: hr.Loader(data, view=[VIEW, hr.ColorJitter(0.4)], batch_size=2),
        r"ColorJitter .* augment=",
    ),
    "mixing": (lambda data: hr.Loader(data, augment=hr.MixUp(), view=VIEW, batch_size=2), r"MixUp .* batch="),
    "mixing of an image": (lambda _: hr.Image(augment=[hr.MixUp()]), r"MixUp .* batch="),
    "flip in a choice": (lambda _: hr.RandomChoice([hr.RandomHorizontalFlip()]), r"view=.*flip="),
    "mixing in a list that applies": (lambda _: hr.RandomApply([hr.MixUp()], 0.5), r"MixUp .* batch="),
    "jitter of a batch": (
        lambda data: hr.Loader(data, view=VIEW, batch_size=2, batch=hr.ColorJitter(0.4)),  # type: ignore[arg-type]
        r"ColorJitter .* augment=",
    ),
    "no brackets of a mixing": (
        lambda data: hr.Loader(data, view=VIEW, batch_size=2, batch=hr.MixUp),  # type: ignore[arg-type]
        r"hr\.MixUp\(…\)",
    ),
    "no brackets": (lambda data: hr.Loader(data, {"image": hr.Image}, view=VIEW, batch_size=2), r"hr\.Image\(…\)"),
    "no brackets of a view": (lambda data: hr.Loader(data, view=hr.Letterbox, batch_size=2), r"hr\.Letterbox\(…\)"),
    "no batch size": (lambda data: hr.Loader(data, view=VIEW), "batch_size="),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_transform_in_the_wrong_place_is_told_where_it_belongs(name: str, data: hr.Dataset) -> None:
    call, place = MISPLACED[name]
    with pytest.raises(UsageError, match=place):
        call(data)


def test_a_slip_in_the_only_required_argument_is_named(data: hr.Dataset) -> None:
    with pytest.raises(UnknownArgumentError, match="bathc_size=: did you mean batch_size="):
        hr.Loader(data, bathc_size=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "slip", "meant"),
    [
        (hr.ColorJitter, "brightnes", "brightness"),
        (hr.MixUp, "alhpa", "alpha"),
        (hr.Normalize, "means", "mean"),
        (hr.Image, "normalise", "normalize"),
    ],
)
def test_a_slip_of_an_augmentation_a_mixing_or_a_field_is_named(
    kind: Callable[..., object], slip: str, meant: str
) -> None:
    with pytest.raises(UnknownArgumentError, match=f"{slip}=: did you mean {meant}="):
        kind(**{slip: 1})


def test_a_loader_is_no_dataset_and_stays_in_its_process(data: hr.Dataset) -> None:
    loader = hr.Loader(data, view=VIEW, batch_size=2)
    with pytest.raises(UsageError, match=r"as_dataloader\(\)"):
        next(iter(DataLoader(loader)))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"state_dict\(\)"):
        pickle.dumps(loader)


def test_ranks_without_torch_name_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['torch'] = None; import headrace.distributed"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install torch" in done.stderr.splitlines()[-1]


def test_a_warning_names_the_line_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    for name in ("b/1.png", "c/1.png", "stray.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hr.open(tmp_path)
        warn_caller("here")
    assert {warning.filename for warning in caught} == {__file__}
    assert len(caught) == 2
