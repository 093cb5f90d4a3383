"""The examples of docs/determinism.md and docs/variable-sizes.md, run as they stand there, by one rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from docs_pages import examples
from loader_data import write_folder

(RANKS,) = examples("determinism.md", "Several ranks")
(FIT,) = examples("variable-sizes.md", "The largest batch that fits in memory")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 1)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layer(image.float()).mean((2, 3)), label % 4)


@pytest.fixture
def scope(tmp_path, monkeypatch) -> dict[str, Any]:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "train", 8)
    return {"Model": Model, "ACCUMULATED": 2}


def test_the_script_trains_and_saves(scope, tmp_path):
    exec(RANKS, scope)
    torch.manual_seed(0)
    scope["main"]()
    saved = torch.load(tmp_path / "model.pt")
    assert set(saved) == {"layer.weight", "layer.bias"}


@pytest.mark.long
def test_the_budget_is_taken_by_a_loader(scope):
    import headrace as hr

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    exec(
        FIT,
        scope | {"hr": hr, "torch": torch, "model": model, "optimizer": optimizer, "device": "cpu"},
        scope,
    )
    assert 600_000 <= scope["budget"].pixels <= 2_000_000
    assert [len(batch["image"]) for batch in scope["loader"]] == [8]
