"""The example of docs/drop-ins/README.md, run as it stands there: all drop-ins in one script, and its resume."""

from __future__ import annotations

import json

import pytest
import torch
from docs_pages import examples

import headrace as hr


@pytest.fixture
def make(photo_tar):
    """The script's `batches`, made anew each time."""
    labels = {name: number for number, name in enumerate(sorted(hr.IndexedTar(photo_tar).getnames()))}
    (script,) = examples("drop-ins/README.md", before="A Dataset that cannot become a Loader")
    script = script.replace('"train.tar"', repr(str(photo_tar))).replace("dataset, 64,", "dataset, 8,")

    def make():
        torch.manual_seed(1)
        scope = {"torch": torch, "hr": hr, "labels": labels, "device": "cpu"}
        exec(script, scope)
        return scope["batches"]

    return make


def test_each_photograph_comes_once(make):
    images, labels = zip(*make(), strict=True)
    assert sorted(torch.cat(labels).tolist()) == list(range(60))
    assert {(image.dtype, image.shape[1:]) for image in images} == {(torch.float32, (3, 224, 224))}


def test_a_resume_goes_on_with_the_same_batches(make):
    expected = [labels.tolist() for _, labels in make()]
    first = make()
    iterator = iter(first)
    got = [next(iterator)[1].tolist() for _ in range(3)]
    state = json.loads(json.dumps(first.state_dict()))
    iterator.close()
    rest = make()
    rest.load_state_dict(state)
    got += [labels.tolist() for _, labels in rest]
    assert got == expected
