"""A small transformer sees a packed sequence as if it were alone, by each way of telling it where sequences begin."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from headrace.fields import Sequences
from headrace.loader.decoding.texts import packed

VOCABULARY, WIDTH, HEADS, LENGTH = 50, 16, 2, 24


class Model(nn.Module):
    """Two blocks; `attend` is given q, k and v of [B, heads, L, D]."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.projections = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.mixers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(2))
        self.logits = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, positions, attend):
        x = self.tokens(ids) + self.positions(positions)
        for project, mix in zip(self.projections, self.mixers, strict=True):
            heads = project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            x = x + mix(attend(*heads).transpose(1, 2).flatten(-2))
        return self.logits(x)


def by_mask(batch):
    blocks = batch["blocks"]
    same = blocks[:, None, :, None] == blocks[:, None, None, :]
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, attn_mask=same & causal)


def by_flex_attention(batch):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    blocks = batch["blocks"]

    def seen(b, h, q, kv):
        return (blocks[b, q] == blocks[b, kv]) & (q >= kv)

    mask = create_block_mask(seen, len(blocks), None, LENGTH, LENGTH, device="cpu")
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask)


def by_boundaries(batch):
    """What a kernel for sequences of several lengths does with `cu_seqlens`: each part of the rows on end by itself."""
    edges = batch["boundaries"].tolist()

    def attend(q, k, v):
        q, k, v = (part.transpose(0, 1).flatten(1, 2) for part in (q, k, v))
        parts = [slice(first, last) for first, last in itertools.pairwise(edges)]
        made = [
            functional.scaled_dot_product_attention(q[:, part], k[:, part], v[:, part], is_causal=True)
            for part in parts
        ]
        return torch.cat(made, dim=1).unflatten(1, (-1, LENGTH)).transpose(0, 1)

    return attend


@pytest.mark.parametrize("way", [by_mask, by_flex_attention, by_boundaries])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.one_in(4)
def test_packed_logits_are_those_of_each_sequence_alone(way):
    rng = np.random.default_rng(1)
    lengths, row_of = [10, 9, 5, 24, 7, 1, 3], np.array([0, 0, 0, 1, 2, 2, 2])
    sequences = [rng.integers(0, VOCABULARY, length).tolist() for length in lengths]
    parts = packed(Sequences.of(sequences), row_of, rows=3, length=LENGTH, pad_id=0)
    batch = {name: torch.from_numpy(part) for name, part in parts.items()}
    model = Model().eval()
    with torch.no_grad():
        together = model(batch["ids"], batch["positions"], way(batch))
        assert torch.isfinite(together).all()
        for number, sequence in enumerate(sequences):
            alone = model(
                torch.tensor([sequence]),
                torch.arange(len(sequence))[None],
                lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
            )
            torch.testing.assert_close(together[batch["blocks"] == number], alone[0], rtol=1e-4, atol=1e-5)
