"""Write the contact sheets of docs/recipes, each as `headrace peek DATA --recipe FILE --out PNG` does.

    python scripts/recipe_sheets.py [--photos FOLDER] [--to docs/recipes]

Data is made from photographs: by default those that scikit-image bundles and that are free of any rights (`pip install
--no-deps scikit-image`). Class folders have one class a photograph; scenes, with masks and boxes, are photographs with
ellipses of others on them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from headrace.tools.demo_dataset import find_source
from headrace.tools.recipe_sheet import write_recipe_sheet

ROOT = Path(__file__).parents[1]
NAMES = ("astronaut", "chelsea", "coffee", "rocket")
SHEETS = {
    "torchvision_classification": ("classes", 12, 112, 5),
    "timm_imagenet": ("classes", 12, 112, 3),
    "simclr": ("classes", 6, 96, 3),
    "dino": ("classes", 4, 84, 3),
    "mae": ("classes", 12, 96, 3),
    "segmentation": ("ade", 6, 112, 3),
    "detection_mosaic": ("coco", 6, 128, 3),
}
"""Data, samples, the side of a picture in pixels, and the seed, for a batch that shows what may happen."""
SIZE = (480, 360)
SCENES, THINGS, SEED = 24, 4, 3


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--photos", type=Path)
    ask.add_argument("--to", type=Path, default=ROOT / "docs" / "recipes")
    ask.add_argument("--only", nargs="+", choices=SHEETS, default=list(SHEETS))
    args = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_data(photographs(args.photos), Path(folder))
        for name in args.only:
            data, samples, size, seed = SHEETS[name]
            recipe, out = ROOT / "docs" / "recipes" / f"{name}.py", args.to / f"{name}.png"
            write_recipe_sheet(recipe, f"{folder}/{data}", out, samples=samples, size=size, seed=seed)
            print(f"{out}: {out.stat().st_size:,} bytes")


def photographs(folder: Path | None) -> dict[str, Image.Image]:
    source = find_source(folder, system=())
    if source.files is None:
        raise SystemExit("expected photographs, got none: pip install --no-deps scikit-image, or give --photos FOLDER")
    named = dict(zip((path.stem for path in source.files), source.load(), strict=True))
    return named if folder is not None else {name: named[name] for name in NAMES}


def make_data(photos: dict[str, Image.Image], folder: Path) -> None:
    """Write classes/, ade/ (images and annotations, as ADE20K's release has them) and coco/ (with annotations.json)."""
    draw = np.random.default_rng(SEED)
    images, masks, coco = folder / "ade/images/training", folder / "ade/annotations/training", folder / "coco"
    for made in (images, masks, coco, *(folder / "classes" / name for name in photos)):
        made.mkdir(parents=True)
    for name, photo in photos.items():
        for number in range(6):
            part(photo, draw, 0.6).save(folder / "classes" / name / f"{number}.jpg", quality=95)
    entries: dict[str, list[dict[str, object]]] = {"images": [], "annotations": []}
    entries["categories"] = [{"id": 1 + number, "name": name} for number, name in enumerate(photos)]
    for number in range(SCENES):
        image, mask, boxes = scene(list(photos.values()), draw)
        image.save(images / f"{number}.jpg", quality=95)
        image.save(coco / f"{number}.jpg", quality=95)
        mask.save(masks / f"{number}.png")
        entries["images"].append(
            {"id": number, "file_name": f"{number}.jpg", "width": image.width, "height": image.height}
        )
        for category, (left, top, right, bottom) in boxes:
            box = {"bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}
            about = {"id": len(entries["annotations"]), "image_id": number, "category_id": category, "iscrowd": 0}
            entries["annotations"].append(about | box)
    (coco / "annotations.json").write_text(json.dumps(entries))


def part(photo: Image.Image, draw: np.random.Generator, least: float) -> Image.Image:
    """Cut a window of at least this share of the photograph's sides."""
    share = draw.uniform(least, 1)
    width, height = int(photo.width * share), int(photo.height * share)
    left, top = int(draw.integers(photo.width - width + 1)), int(draw.integers(photo.height - height + 1))
    return photo.resize(SIZE, Image.Resampling.LANCZOS, box=(left, top, left + width, top + height))


def scene(
    photos: list[Image.Image], draw: np.random.Generator
) -> tuple[Image.Image, Image.Image, list[tuple[int, tuple[int, int, int, int]]]]:
    """Draw ellipses of some photographs onto another; classes of the mask are the photographs', from 1."""
    behind = int(draw.integers(len(photos)))
    image, mask = part(photos[behind], draw, 0.8), Image.new("L", SIZE, 1 + behind)
    boxes = []
    for _ in range(THINGS):
        which = int(draw.integers(len(photos)))
        width, height = (int(draw.integers(side // 5, side // 2)) for side in SIZE)
        left, top = int(draw.integers(SIZE[0] - width)), int(draw.integers(SIZE[1] - height))
        box = (left, top, left + width, top + height)
        shape = Image.new("L", SIZE)
        ImageDraw.Draw(shape).ellipse(box, fill=255)
        image.paste(part(photos[which], draw, 0.4), (0, 0), shape)
        mask.paste(1 + which, (0, 0), shape.point(lambda value: 255 * (value > 127)))
        boxes.append((1 + which, box))
    return image, mask, boxes


if __name__ == "__main__":
    main()
