"""Rows of texts and pictures for two ranks: each has the same tokens at every step, pictures included.

    python examples/make_captions.py captions
    torchrun --standalone --nproc-per-node 2 examples/vision_language.py captions --steps 60

A sample joins up to three captions, each with its picture or without. A picture takes a token for every 16 x 16 pixels,
and `tokens_per_image` counts them where rows are packed. The model predicts each next token of a caption from the words
before it and the sample's pictures.
"""

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

import headrace as hr

ROW, SIDE, PATCH, WIDTH = 256, 64, 16, 64
PATCHES = (SIDE // PATCH) ** 2


def samples(folder):
    """Return texts and lists of 0 to 3 pictures."""
    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    draw, found = np.random.default_rng(0), {"text": [], "images": []}
    while rows:
        count = int(draw.integers(1, 4))
        part, rows = rows[:count], rows[count:]
        found["text"].append(". ".join(row["text"][int(draw.integers(len(row["text"])))] for row in part))
        found["images"].append([row["image"] for row in part if draw.random() < 0.8])
    return found


def loader_of(folder, rows, device, rank=None, world_size=None):
    return hr.Loader(
        hr.open(samples(folder), root=folder / "images"),
        {
            "text": hr.Text(folder / "tokenizer.json", max_length=ROW - 3 * PATCHES),
            "images": hr.Images(hr.Image(dtype="float32", normalize=hr.IMAGENET)),
        },
        view=hr.Resize((SIDE, SIDE)),
        pack=hr.SequencePacking(ROW, tokens_per_image=PATCHES),
        batch_size=rows,
        shuffle=True,
        remainder="drop",
        device=device,
        rank=rank,
        world_size=world_size,
    )


class Model(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words = nn.Embedding(words, WIDTH)
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.memory = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, words)

    def forward(self, batch):
        """Return the mean loss over all texts of the batch."""
        counts = batch["images_counts"].to(batch["text"]["ids"].device)
        pictures = self.patches(batch["images"]).mean((2, 3))
        owners = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
        seen = torch.zeros(len(counts), WIDTH, device=counts.device).index_add(0, owners, pictures)
        ids, blocks = batch["text"]["ids"], batch["text"]["blocks"]
        hidden, _ = self.memory(self.words(ids) + seen[blocks.clamp(min=0)])
        logits, follows = self.out(hidden[:, :-1]), (blocks[:, 1:] == blocks[:, :-1]) & (blocks[:, 1:] >= 0)
        return nn.functional.cross_entropy(logits[follows], ids[:, 1:][follows])


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--steps", type=int, default=60)
    ask.add_argument("--rows", type=int, default=4, help="of a batch, per rank")
    ask.add_argument("--device", default=None)
    args = ask.parse_args()
    with hr.distributed.start() as ranks:
        torch.manual_seed(0)
        device = args.device or str(ranks.device)
        loader = loader_of(args.folder, args.rows, device)
        words = len(json.loads((args.folder / "tokenizer.json").read_text())["model"]["vocab"])
        model = ranks.wrap(Model(words).to(device))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        for step, batch in enumerate(itertools.islice(batches, args.steps)):
            loss = model(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tokens = int(batch["text"]["mask"].sum()) + PATCHES * int(batch["images_counts"].sum())
            print(f"rank {ranks.rank} step {step} loss {loss.item():.4f} of {tokens} tokens", flush=True)


if __name__ == "__main__":
    main()
