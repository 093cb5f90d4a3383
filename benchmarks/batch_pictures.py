"""Draws docs/dense-batch.png and docs/rank-shapes.png: what a Loader's batches hold, of the scenes of examples/.

    python benchmarks/batch_pictures.py [--out docs]

dense-batch  image, mask, depth and normals of one batch, a sample a column. Hatched is what is not valid: no depth
             in the file, `ignore` in a mask, padding
rank-shapes  what two ranks have at three steps, to scale: with scales of their own, and with buckets and a RandomScale
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import headrace as hr

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from scenes import COLOURS, IGNORE, draw  # its folder is no package

Picture = NDArray[np.uint8]
INK, PAPER, GAP = (40, 44, 52), (255, 255, 255), 6
FAR_TO_NEAR = np.array([(48, 18, 59), (70, 107, 227), (40, 188, 235), (50, 242, 152), (164, 252, 60), (238, 207, 58),
                        (251, 126, 33), (209, 49, 5), (122, 4, 3)])  # fmt: skip
SHORT_SIDES, LONG_MAX = (48, 60, 72, 84, 96), 160


def font(size: int) -> Any:
    return ImageFont.load_default(size)


def hatched(picture: Picture, where: NDArray[np.bool_]) -> Picture:
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]]
    stripes = np.where(((x + y) % 8 < 4)[..., None], 205, 235)
    return np.where(where[..., None], stripes, picture).astype(np.uint8)


def mask_picture(mask: NDArray[Any]) -> Picture:
    colours = np.array(COLOURS, np.uint8)
    return hatched(colours[np.minimum(mask, len(colours) - 1)], mask == IGNORE)


def depth_picture(depth: NDArray[np.float32], valid: NDArray[np.bool_]) -> Picture:
    """Of depths from -1 to 1: near ones are red."""
    place = (1 - depth) / 2 * (len(FAR_TO_NEAR) - 1)
    bands = [np.interp(place, range(len(FAR_TO_NEAR)), FAR_TO_NEAR[:, band]) for band in range(3)]
    return hatched(np.stack(bands, axis=-1).astype(np.uint8), ~valid)


def chw(picture: torch.Tensor) -> Picture:
    return picture.numpy().transpose(1, 2, 0)


def dense_batch() -> Image.Image:
    fields = {
        "image": hr.Image(filter="nearest"),
        "mask": hr.Mask(ignore=IGNORE),
        "depth": hr.Depth(scale=1 / 1000, normalize=hr.Quantiles(0.02, 0.98)),
        "normals": hr.Normals(),
    }
    with tempfile.TemporaryDirectory() as name:
        for number, size in enumerate([(190, 253), (216, 162), (150, 200), (190, 285)]):
            scene = draw((1, 14, 0, 23)[number], *size)
            files = {"image": scene.rgb, "mask": scene.mask, "depth": scene.depth, "normals": scene.normals}
            for field, pixels in files.items():
                Path(name, field).mkdir(exist_ok=True)
                Image.fromarray(pixels).save(Path(name, field, f"{number}.png"))
        data = hr.open({field: Path(name, field) for field in fields})
        view = hr.RandomCrop((172, 200), pad_if_needed=True, flip=0.5, fill=255)
        batch = next(iter(hr.Loader(data, fields, view=view, batch_size=4, shuffle=True, seed=3)))
    rows = {
        "image": [chw(each) for each in batch["image"]],
        "mask": [mask_picture(each) for each in batch["mask"].numpy()],
        "depth": [
            depth_picture(*each)
            for each in zip(batch["depth"][:, 0].numpy(), batch["depth_valid"][:, 0].numpy(), strict=True)
        ],
        "normals": [normal_picture(chw(each)) for each in batch["normals"]],
    }
    return sheet(rows)


def normal_picture(normals: NDArray[np.float32]) -> Picture:
    picture = np.rint(127.5 + 127.5 * normals).astype(np.uint8)
    return hatched(picture, (normals == 0).all(axis=-1))


def sheet(rows: dict[str, list[Picture]]) -> Image.Image:
    height, width = next(iter(rows.values()))[0].shape[:2]
    left = 78
    out = Image.new("RGB", (left + 4 * (width + GAP), len(rows) * (height + GAP) + GAP), PAPER)
    pen = ImageDraw.Draw(out)
    for row, (name, pictures) in enumerate(rows.items()):
        top = GAP + row * (height + GAP)
        pen.text((4, top + height // 2), name, INK, font(17), anchor="lm")
        for column, picture in enumerate(pictures):
            out.paste(Image.fromarray(picture), (left + column * (width + GAP), top))
    return out


def rank_loaders(data: hr.Dataset, together: bool) -> list[hr.Loader]:
    """One a rank: of one plan, or each by itself."""
    return [
        hr.Loader(
            data if together else data.select(range(rank, len(data), 2)),
            {"image": hr.Image()},
            view=hr.RandomScale(SHORT_SIDES, long_max=LONG_MAX, fill=215),
            buckets=hr.Buckets("aspect", count=6) if together else hr.Buckets("orientation"),
            batch_size=2,
            shuffle=True,
            remainder="drop",
            seed=11 if together else rank,
            rank=rank if together else 0,
            world_size=2 if together else 1,
        )
        for rank in range(2)
    ]


def rank_shapes() -> Image.Image:
    with tempfile.TemporaryDirectory() as name:
        rng = np.random.default_rng(8)
        for number in range(48):
            height, width = np.array([(3, 4), (3, 4), (2, 3), (4, 3), (1, 1), (9, 16)])[rng.integers(6)] * 36
            Image.fromarray(draw(500 + number, height, width).rgb).save(Path(name, f"{number:02}.png"))
        data = hr.open(name)
        parts = [steps_picture(title, rank_loaders(data, together)) for title, together in TITLES.items()]
    out = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), PAPER)
    for number, part in enumerate(parts):
        out.paste(part, (0, sum(each.height for each in parts[:number])))
    return out


TITLES = {"each rank draws for itself": False, "RandomScale and Buckets: one draw for all ranks": True}


def steps_picture(title: str, loaders: list[hr.Loader]) -> Image.Image:
    """Ranks in rows, three steps beside each other. Below each batch, its cost."""
    steps = list(zip(*(map(chw_batch, loader) for loader in loaders), strict=False))[:3]
    wide, high = 2 * (LONG_MAX + 4) + 10, max(part[0].shape[0] for step in steps for part in step) + 34
    out = Image.new("RGB", (60 + 3 * wide, 34 + 2 * high), PAPER)
    pen = ImageDraw.Draw(out)
    pen.text((4, 16), title, INK, font(19), anchor="lm")
    for column, parts in enumerate(steps):
        costs = [len(part) * part[0].shape[0] * part[0].shape[1] for part in parts]
        for rank, (part, cost) in enumerate(zip(parts, costs, strict=True)):
            left, top = 60 + column * wide, 34 + rank * high
            for number, picture in enumerate(part):
                out.paste(Image.fromarray(picture), (left + number * (picture.shape[1] + 4), top))
            if column == 0:
                pen.text((4, top + 30), f"rank {rank}", INK, font(16), anchor="lm")
            waits = f", waits {1 - cost / max(costs):.0%} of the time" if cost < max(costs) else ""
            text = f"{part[0].shape[0]} x {part[0].shape[1]}{waits}"
            pen.text((left, top + part[0].shape[0] + 11), text, INK, font(15), anchor="lm")
    return out


def chw_batch(batch: dict[str, Any]) -> list[Picture]:
    return [chw(each) for each in batch["image"]]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs")
    folder = ask.parse_args().out
    for name, picture in (("dense-batch", dense_batch()), ("rank-shapes", rank_shapes())):
        path = folder / f"{name}.png"
        picture.quantize(256, kmeans=3, dither=Image.Dither.FLOYDSTEINBERG).save(path, optimize=True)
        print(f"{path}: {picture.width}x{picture.height}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
