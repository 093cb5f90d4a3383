"""Stages of torchvision and torchcodec, on stand-ins of their shape: the real ones want a torch of their own build."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from probing import LibraryProbe, library_probe

STAND_INS = Path(__file__).parents[1] / "stand_ins"


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LibraryProbe]:
    """The probe is there first, as it is in a command; the stand-in is imported under it."""
    monkeypatch.syspath_prepend(str(STAND_INS))
    with library_probe(tmp_path / "session") as probed:
        yield probed
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torchvision", "torchcodec")]:
        del sys.modules[name]


@pytest.fixture
def image() -> torch.Tensor:
    return torch.arange(48).reshape(3, 4, 4)


def imported(name: str) -> Any:
    return importlib.import_module(f"torchvision.{name}")


class Invert:
    """A transform of the user's own."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return -image


def double(image: torch.Tensor) -> torch.Tensor:
    return image * 2


def test_torchcodec(probed: LibraryProbe) -> None:
    decoders = importlib.import_module("torchcodec.decoders")
    calls = probed.calls(lambda: decoders.decode_image(b"abc"))
    assert calls == {"decode:torchcodec decode_image": 1}
    assert probed.result.tolist() == list(b"abc")
    calls = probed.calls(lambda: decoders.VideoDecoder("clip.mp4").get_frames_at([0, 4]))
    assert calls == {"decode:torchcodec video": 2}
    assert probed.result == [0, 4]


def test_decoders(probed: LibraryProbe, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).save(path)
    io = imported("io")
    whole = io.read_image(str(path))
    calls = probed.calls(lambda: io.read_image(str(path)))
    assert calls == {"decode:torchvision read_image": 1, "read:torchvision read_file": 1}
    assert torch.equal(probed.result, whole)


def test_children_of_a_compose_by_name(probed: LibraryProbe, image: torch.Tensor) -> None:
    transforms = imported("transforms")
    inner = transforms.RandomApply([transforms.Resize(3)])
    children = [transforms.ToTensor(), inner, Invert(), double]
    compose = transforms.Compose(children)
    calls = probed.calls(lambda: compose(image))
    assert calls == {"transform:ToTensor": 1, "transform:Resize": 1, "transform:Invert": 1, "transform:double": 1}
    assert torch.equal(probed.result, -2 * image[:, :3, :3])
    assert compose.transforms is children
    assert torch.equal(pickle.loads(pickle.dumps(compose))(image), probed.result)
    assert torch.equal(compose(image), probed.result)


def test_children_of_a_compose_of_v2(probed: LibraryProbe, image: torch.Tensor) -> None:
    v2 = imported("transforms.v2")
    compose = v2.Compose([v2.RandomApply([v2.Resize(3)]), v2.Resize(2)])
    assert probed.calls(lambda: compose(image)) == {"transform:Resize": 2}
    assert torch.equal(probed.result, image[:, :2, :2])
    assert probed.calls(lambda: compose(image, image)) == {"transform:Resize": 2}
    assert torch.equal(copy.deepcopy(compose)(image), image[:, :2, :2])


def test_kernels_are_found_under_both_names(probed: LibraryProbe, image: torch.Tensor) -> None:
    """A function of v2 is a key, also of kernels that the user adds."""

    class Mask(torch.Tensor):
        pass

    functional = imported("transforms.v2.functional")
    functional.register_kernel(functional.resize, Mask)(lambda mask, size: "mine")
    assert functional.resize(image.as_subclass(Mask), 2) == "mine"
    v2 = imported("transforms.v2")
    assert v2.Resize(2)(image.as_subclass(Mask)) == "mine"
    assert probed.calls(lambda: functional.resize(image, 2)) == {"transform:torchvision resize": 1}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # from torch 2.15 on
def test_scripting_sees_the_originals(probed: LibraryProbe, image: torch.Tensor) -> None:
    functional, v2 = imported("transforms.functional"), imported("transforms.v2")
    transforms = imported("transforms")
    chain = torch.nn.Sequential(transforms.Resize(3), transforms.Resize(2))
    for module in (chain, functional.resize, v2.functional.resize, imported("io").decode_image):
        scripted = torch.jit.script(module)
        arguments = {chain: (image,), imported("io").decode_image: (torch.arange(12),)}.get(module, (image, 2))
        assert torch.equal(scripted(*arguments), module(*arguments))


@pytest.mark.long
def test_compiling_sees_the_originals(probed: LibraryProbe, image: torch.Tensor) -> None:
    """`fullgraph` refuses whatever would break the graph, as a clock would."""
    transforms, v2 = imported("transforms"), imported("transforms.v2")
    for work in (transforms.Compose([transforms.Resize(2)]), v2.Compose([v2.Resize(2)])):
        compiled = torch.compile(lambda image, work=work: work(image), backend="eager", fullgraph=True)
        calls = probed.calls(lambda compiled=compiled: compiled(image))  # type: ignore[misc]
        assert not [stage for stage in calls if stage.startswith("transform")]
        assert torch.equal(probed.result, image[:, :2, :2])
    torch.compiler.reset()
