"""Contrastive training of images and their captions, on one rank or many.

    python examples/make_captions.py captions
    torchrun --nproc-per-node 2 examples/clip.py captions --steps 300
    python examples/clip.py captions --steps 600    # goes on where that stopped: same batches, on one rank

Each image is cut at random and one of its captions drawn, both anew in each epoch; captions are tokenised a batch at a
time while the next images are decoded, and padded to the longest of the batch. The loss is CLIP's (Radford et al.,
2021) over the batch of all ranks: each rank compares its images and texts with everybody's.
"""

import argparse
import os
from itertools import chain, repeat
from pathlib import Path

import torch
import torch.distributed.nn
from torch import nn

import headrace as hr

GLOBAL_BATCH = 32  # over all ranks, so that a run can be resumed on another number of them
LENGTH = 32  # tokens of a caption, at most
WIDTH = 64


def loader_of(folder, size, ranks):
    return hr.Loader(
        hr.open(folder / "captions.jsonl", root=folder / "images"),
        {
            "image": hr.Image(dtype="float32", normalize=hr.IMAGENET),
            "text": hr.Text(folder / "tokenizer.json", max_length=LENGTH),
        },
        view=hr.RandomResizedCrop(size, scale=(0.6, 1.0)),
        batch_size=GLOBAL_BATCH // ranks.world_size,
        shuffle=True,
        seed=0,
        remainder="drop",
        device=ranks.device,
    )


class Pair(nn.Module):
    """Images and texts as unit vectors of one space, and how sharply they are told apart."""

    def __init__(self):
        super().__init__()
        layers = []
        for channels, out in ((3, 16), (16, 32), (32, WIDTH)):
            layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.GroupNorm(4, out), nn.GELU()]
        self.image = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * WIDTH, WIDTH))
        self.token, self.place = nn.Embedding(512, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.text = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, ids, mask):
        text = self.token(ids) + self.place.weight[: ids.shape[1]]
        text = self.text(text, src_key_padding_mask=~mask)
        text = (text * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return nn.functional.normalize(self.image(image)), nn.functional.normalize(text), self.scale.exp()


def loss_of(image, text, scale, ranks):
    """Of this rank's rows; the mean over ranks is that of the whole batch."""
    images, texts = image, text
    if ranks.world_size > 1:
        images, texts = (torch.cat(torch.distributed.nn.all_gather(part)) for part in (image, text))
    own = torch.arange(len(image), device=image.device) + ranks.rank * len(image)
    to_text = nn.functional.cross_entropy(scale * image @ texts.T, own)
    return (to_text + nn.functional.cross_entropy(scale * text @ images.T, own)) / 2


def save(path, step, model, optimizer, loader):
    """A file that is there is whole, whenever the run is killed."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state | {"loader": loader.state_dict()}, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)


def train(args, ranks):
    torch.manual_seed(0)
    loader = loader_of(args.folder, args.size, ranks)
    model, first = Pair(), 0
    wrapped = ranks.wrap(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint, map_location=ranks.device)
        first = state["step"]
        for name, part in (("model", model), ("optimizer", optimizer), ("loader", loader)):
            part.load_state_dict(state[name])  # the same on every rank
    batches = chain.from_iterable(repeat(loader))  # epoch after epoch
    for step, batch in zip(range(first, args.steps), batches, strict=False):
        loss = loss_of(*wrapped(batch["image"], **batch["text"]), ranks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {ranks.rank} step {step} loss {loss.item():.6f}\n", end="", flush=True)
        if ranks.is_first:
            save(args.checkpoint, step + 1, model, optimizer, loader)
    if ranks.is_first:
        print(loader.stats())


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--steps", type=int, default=300)
    ask.add_argument("--size", type=int, default=56)
    ask.add_argument("--device", choices=["cpu", "cuda"])
    ask.add_argument("--checkpoint", type=Path, default=Path("clip.pt"))
    args = ask.parse_args()
    with hr.distributed.start(device=args.device) as ranks:
        train(args, ranks)


if __name__ == "__main__":
    main()
