"""Arguments as other libraries spell them: taken where they mean something, else refused with what to write instead."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.errors import UnknownArgumentError, UsageError

CALLS = {
    "Image(size=)": (lambda: hr.Image(size=224), "hr.Resize"),
    "Mask(interpolation=)": (lambda: hr.Mask(interpolation=0), "filter="),
    "RandomResizedCrop(interpolation=)": (lambda: hr.RandomResizedCrop(224, interpolation=2), "filter="),
    "Resize(antialias=)": (lambda: hr.Resize(224, antialias=True), "antialiased"),
    "Resize(max_sise=)": (lambda: hr.Resize(224, max_sise=3), "max_size="),
    "open(split=)": (lambda: hr.open("train", split="train"), "data/train"),
    "open(colums=)": (lambda: hr.open("train", colums=["a"]), "columns="),
    "Loader(num_workers=)": (lambda: hr.Loader("train", batch_size=4, num_workers=4), "threads="),
}


@pytest.mark.parametrize(("call", "instead"), CALLS.values(), ids=CALLS)
def test_a_foreign_argument_is_refused_with_what_to_write(call, instead):
    with pytest.raises(UnknownArgumentError) as found:
        call()
    assert isinstance(found.value, TypeError)
    assert instead in str(found.value)


def test_mean_and_deviation_are_a_normalize():
    half = ((0.5,) * 3, [0.5] * 3)
    expected = hr.Image(dtype="float32", normalize=hr.Normalize((0.5,) * 3, (0.5,) * 3))
    assert hr.Image(dtype="float32", normalize=half) == expected


@pytest.mark.parametrize("wrong", [True, 0.5, (0.5, 0.5), "imagenet"])
def test_anything_else_is_none(wrong):
    with pytest.raises(UsageError, match=r"hr\.IMAGENET"):
        hr.Image(dtype="float32", normalize=wrong)


@pytest.mark.parametrize("dtype", [torch.float32, np.float32, np.dtype("float32"), "float32"], ids=repr)
def test_types_of_torch_and_numpy_are_taken_by_their_names(dtype):
    for field in (hr.Image, hr.Depth, hr.Normals, hr.Array):
        assert field(**({"scale": 1.0} if field is hr.Depth else {}), dtype=dtype).dtype == "float32"
    with pytest.raises(UsageError, match="dtype"):
        hr.Image(dtype=torch.float64)


@pytest.mark.long
def test_metrics_are_there_as_the_docs_write_them():
    code = "import headrace as hr; print(hr.metrics.LoaderMetrics.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "LoaderMetrics"


def test_without_torch_a_drop_in_says_how_to_install_it():
    code = "import sys; sys.modules['torch'] = None\nimport headrace as hr\nhr.ThreadDataLoader"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "ModuleNotFoundError: headrace.ThreadDataLoader needs PyTorch: pip install torch" in found.stderr


@pytest.mark.long
def test_a_list_at_the_end_of_the_interpreter_prints_nothing():
    code = "import headrace as hr, torch\nclass D:\n def __init__(self): self.p = hr.shared_list([('a', 1)] * 9)\n"
    code += "d = D()\ndef keeps(): return d\nitems = d.p"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stderr == ""
