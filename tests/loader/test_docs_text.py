"""The examples of docs/text.md, run as they stand there but for the sizes."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np
import pytest
import torch
from docs_pages import examples
from loader_data import encode, photograph
from text_data import caption, npy, tokenizer

EXAMPLES = examples("text.md", before="Packed texts")
IMAGES = 70


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the examples, one after the other, beside a small COCO of captions and a tar of embeddings."""
    (tmp_path / "train2017").mkdir()
    (tmp_path / "annotations").mkdir()
    image = encode(photograph(1, 60, 50), quality=90)
    images, annotations = [], []
    for number in range(IMAGES):
        (tmp_path / "train2017" / f"{number}.jpg").write_bytes(image)
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 60, "height": 50})
        annotations += [{"image_id": number, "caption": caption(number + which)} for which in range(5)]
    text = json.dumps({"images": images, "annotations": annotations})
    (tmp_path / "annotations" / "captions_train2017.json").write_text(text)
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    with tarfile.open(tmp_path / "pairs.tar", "w") as tar:
        for number in range(IMAGES):
            for name, data in (
                (f"{number:03}.jpg", image),
                (f"{number:03}.npy", npy(np.full(512, number, np.float32))),
            ):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    monkeypatch.chdir(tmp_path)

    def execute(count):
        names: dict[str, object] = {}
        for example in EXAMPLES[:count]:
            exec(example, names)
        return names

    return execute


def test_images_and_captions(run):
    names = run(1)
    assert len(EXAMPLES) == 5
    assert names["batch"]["image"].shape == (IMAGES - 64, 3, 224, 224)
    ids, mask = names["ids"], names["mask"]
    assert (ids.dtype, mask.dtype, ids.shape) == (torch.int64, torch.bool, mask.shape)
    assert ids.shape[1] == int(mask.sum(1).max())


def test_a_function(run):
    names = run(2)
    (first, _) = names["loader"]
    assert first["text"]["ids"].max() <= 3
    assert first["text"]["mask"].any(1).all()


def test_a_budget_of_tokens(run):
    batches = [batch["text"]["ids"].shape for batch in run(3)["loader"]]
    assert sum(count for count, _ in batches) == IMAGES
    assert all(count * length <= 4096 for count, length in batches)


def test_a_cache(run):
    loader = run(4)["loader"]
    for _ in range(2):
        assert sum(len(batch["text"]["ids"]) for batch in loader) == IMAGES
    stats = loader.stats().cache
    assert stats.cuts == {"text": "tokens"}
    assert stats.hits + stats.misses == IMAGES
    assert stats.hits > 0


def test_arrays(run):
    (first, second) = run(5)["loader"]
    assert first["embedding"].shape == (64, 512)
    assert second["embedding"][:, 0].tolist() == list(range(64, IMAGES))
