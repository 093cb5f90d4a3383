"""Padding that a text tower pools or attends to is found by its gradient; masked padding raises no alarm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from made_reports import made_session
from made_sessions import replace
from torch import nn

from headrace.doctor.faults.sample_faults import embedded_padding
from headrace.doctor.probe.look.first_batches import ModelInputs
from headrace.doctor.probe.patches import Patches

WIDTH, WORDS, END, PAD = 12, 20, 30, 0
LENGTHS = (5, 9, 12, 3, 7, 6)


def texts(pad: int = PAD, end: int = END, left: bool = False) -> torch.Tensor:
    """Rows of words and an end, filled up with padding."""
    drawn = torch.Generator().manual_seed(0)
    words = [torch.randint(1, WORDS, (length - 1,), generator=drawn).tolist() for length in LENGTHS]
    rows = [[*row, end] for row in words]
    return torch.tensor(
        [[pad] * (WIDTH - len(row)) * left + row + [pad] * (WIDTH - len(row)) * (not left) for row in rows]
    )


class Tower(nn.Module):
    """Text tower that pools by `how`, and attends to padding unless `masks`."""

    def __init__(self, how: str, pad: int = PAD, *, masks: bool = True, causal: bool = False) -> None:
        super().__init__()
        self.how, self.pad, self.masks, self.causal = how, pad, masks, causal
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(WIDTH, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        is_pad = ids == self.pad
        x = self.words(ids) + self.places(torch.arange(WIDTH).expand(len(ids), -1))
        future = torch.ones(WIDTH, WIDTH, dtype=torch.bool).triu(1) if self.causal else None
        hidden = is_pad if self.masks and not self.causal else None
        x = x + self.attention(x, x, x, key_padding_mask=hidden, attn_mask=future, need_weights=False)[0]
        if self.how == "mean":
            return x.mean(1)
        if self.how == "masked mean":
            return (x * ~is_pad[..., None]).sum(1) / (~is_pad).sum(1, keepdim=True)
        place = {"first": torch.zeros(len(ids), dtype=torch.long), "last": torch.full((len(ids),), WIDTH - 1)}
        return x[torch.arange(len(ids)), place.get(self.how, ids.argmax(1))]


def faults(model: nn.Module, ids: torch.Tensor) -> list[str]:
    """Return the codes of the faults that one step of a model shows."""
    facts: dict[str, Any] = {}
    evidence = SimpleNamespace(write=lambda record: facts.update(record[2]))
    patches, errors = Patches(), list[BaseException]()
    inputs = ModelInputs(evidence, SimpleNamespace(now_us=lambda: 0), compares=True)
    inputs.install(patches, torch, lambda: False, lambda hook, error: errors.append(error))
    try:
        model(ids).square().sum().backward()
    finally:
        patches.restore()
    assert not errors
    session = made_session(20)
    trainer = session.process_of(session.trainers[0])
    session.processes = [replace(one, facts={"facts": facts}) if one is trainer else one for one in session.processes]
    return [f"{one.code} {one.certainty}" for one in embedded_padding(session)]


@pytest.mark.parametrize(
    ("model", "ids"),
    [
        pytest.param(Tower("mean"), texts(), id="a mean over padding"),
        pytest.param(Tower("mean", masks=False), texts(left=True), id="a mean over padding on the left"),
        pytest.param(Tower("first", masks=False), texts(), id="attention to padding"),
        pytest.param(Tower("last", 40, causal=True), texts(pad=40), id="the last token"),
        pytest.param(Tower("argmax", 40, causal=True), texts(pad=40), id="argmax finds padding beyond the end"),
    ],
)
def test_padding_that_counts(model: nn.Module, ids: torch.Tensor) -> None:
    assert faults(model, ids) == ["attended-padding unless intended"]


@pytest.mark.parametrize(
    ("model", "ids"),
    [
        pytest.param(Tower("masked mean"), texts(), id="a masked mean"),
        pytest.param(Tower("masked mean"), texts(left=True), id="a masked mean of padding on the left"),
        pytest.param(Tower("first"), texts(), id="masked attention"),
        pytest.param(Tower("last"), texts(left=True), id="the last token after padding on the left"),
        pytest.param(Tower("argmax", causal=True), texts(), id="argmax finds the end"),
        pytest.param(Tower("argmax", END, causal=True), texts(pad=END), id="padding by the end's number, as of CLIP"),
    ],
)
def test_padding_that_does_not_count(model: nn.Module, ids: torch.Tensor) -> None:
    assert faults(model, ids) == []
