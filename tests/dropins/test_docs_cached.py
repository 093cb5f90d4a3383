"""The example of docs/drop-ins/images.md, run as it stands there."""

from __future__ import annotations

import re

import numpy as np
import torch
from cached_data import LENGTH, SIDE, Pictures
from docs_pages import section

import headrace
from headrace.dropins.sample_encoding import encode_sample

TITLE = "cached"


class Photos(Pictures):
    def __init__(self, root, transform):
        super().__init__()
        self.root = root
        self.transform = transform

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return self.transform(image), label


def test_the_example():
    (example,) = re.findall(r"# after\n(.*?)```", section("drop-ins/images.md", TITLE), re.DOTALL)
    drawn = []

    def random_part(image):
        drawn.append(torch.rand(1))
        return np.asarray(image)

    scope = {
        "headrace": headrace,
        "Photos": Photos,
        "Resize": lambda size: lambda image: image.resize((size, size)),
        "random_part": random_part,
    }
    exec(example.replace("Resize(256)", f"Resize({SIDE})").replace("8GB", "8MB"), scope)
    dataset = scope["dataset"]
    epochs = [[image.tolist() for image, _ in dataset] for _ in range(2)]
    assert epochs[0] == epochs[1]
    assert len(drawn) == 2 * LENGTH
    assert dataset.stats().hits == LENGTH


def test_the_size_that_it_tells():
    from PIL import Image

    assert round(len(encode_sample(Image.new("RGB", (256, 340)), 0)) / 1000) == 261
    assert 8e9 / 261e3 > 30_000
