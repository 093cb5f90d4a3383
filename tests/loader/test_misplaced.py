"""Arguments in the wrong place, and Loaders where they cannot go: the error names what to write instead."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torch.utils.data import DataLoader

import headrace as hr
from headrace.errors import UnknownArgumentError, UsageError, warn_caller

VIEW = hr.Resize((8, 8))


def theirs(name: str, module: str = "torchvision.transforms") -> Any:
    """A class of another library, by the names that the message reads: torchvision may be missing here."""
    return type(name, (), {"__module__": module})


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
    "torchvision's flip": (
        lambda data: hr.Loader(data, augment=theirs("RandomHorizontalFlip")(), view=VIEW, batch_size=2),
        r"hr\.RandomHorizontalFlip\(…\), for view=.*flip=.*from_torchvision",
    ),
    "torchvision's jitter as a view": (
        lambda data: hr.Loader(data, view=[VIEW, theirs("ColorJitter")()], batch_size=2),
        r"hr\.ColorJitter\(…\), for augment=",
    ),
    "torchvision's resize as a field": (
        lambda data: hr.Loader(data, {"image": theirs("Resize")()}, view=VIEW, batch_size=2),
        r"hr\.Resize\(…\), for view=",
    ),
    "torchvision's mean in a list": (
        lambda _: hr.RandomApply([theirs("Normalize")()], 0.5),
        r"hr\.Normalize\(…\), for normalize=",
    ),
    "torchvision's mixing without brackets": (
        lambda data: hr.Loader(data, view=VIEW, batch_size=2, augment=theirs("CutMix", "torchvision.transforms.v2")),
        r"hr\.CutMix\(…\), for batch=",
    ),
    "albumentations' flip of an image": (
        lambda _: hr.Image(augment=[theirs("HorizontalFlip", "albumentations.augmentations")()]),
        r"hr\.RandomHorizontalFlip\(…\), for view=.*from_albumentations",
    ),
    "a chain that has no counterpart of its name": (
        lambda data: hr.Loader(data, view=theirs("Compose")(), batch_size=2),
        r"None, got.*from_torchvision",
    ),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_transform_in_the_wrong_place_is_told_where_it_belongs(name: str, data: hr.Dataset) -> None:
    call, place = MISPLACED[name]
    with pytest.raises(UsageError, match=place):
        call(data)


def test_a_slip_in_the_only_required_argument_is_named(data: hr.Dataset) -> None:
    with pytest.raises(UnknownArgumentError, match="bathc_size=: did you mean batch_size="):
        hr.Loader(data, bathc_size=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="batch_size"):
        hr.Loader(data)  # type: ignore[call-arg]


def arguments_of(name: str) -> list[str]:
    """Names of the arguments of a public callable, the first one left out."""
    call = getattr(hr, name)
    return list(inspect.signature(call).parameters)[1:] if callable(call) else []


NOT_CALLED = {"Dataset", "HeadraceError", "Limits", "Translated"}
"""Results, and a native class, whose own error lists its arguments."""


@pytest.mark.parametrize("name", [name for name in hr.__all__ if name not in NOT_CALLED and arguments_of(name)])
def test_a_slip_in_an_argument_of_a_public_callable_is_named(name: str) -> None:
    for meant in arguments_of(name):
        slip = meant + meant[-1]
        with pytest.raises(UnknownArgumentError, match=f"{slip}=: did you mean {meant}="):
            getattr(hr, name)(**{slip: 1})


def test_a_subclass_of_the_users_takes_arguments_of_its_own(data: hr.Dataset) -> None:
    class Mine(hr.Loader):
        def __init__(self, data: hr.Dataset, *, pixels: int, **more: Any) -> None:
            super().__init__(data, view=hr.Resize((pixels, pixels)), **more)

    class Named(hr.ThreadDataLoader):
        def __init__(self, items: list[int], *, title: str) -> None:
            super().__init__(items, batch_size=2)
            self.title = title

    assert next(iter(Mine(data, pixels=8, batch_size=2)))["image"].shape[-2:] == (8, 8)
    assert Named([1, 2], title="a").title == "a"
    with pytest.raises(UnknownArgumentError, match="titel=: did you mean title="):
        Named([1, 2], titel="a")  # type: ignore[call-arg]


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
