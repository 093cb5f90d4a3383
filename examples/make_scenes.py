"""Draws the data of these examples: rooms whose depth, classes and normals are known exactly.

    python examples/make_scenes.py scenes [--count 64] [--height 64]

scenes/pairs.tar, list.txt   RGB and depth as Hypersim has them: PNGs of 8 and 16 bits (millimetres, 0: none) in one
                             tar, whose members begin with "./"; the list has "rgb depth" a line, without it
scenes/images, masks         JPEGs of unlike sizes and shapes, as ADE20K's are, and palette PNGs (255: ignore)
scenes/classes/train, val    a folder for each class: a ball, a box or a can in a room
"""

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image
from scenes import COLOURS, draw

SHAPES = ((3, 4), (3, 4), (2, 3), (4, 3), (1, 1), (9, 16))  # height to width; most photographs are 4:3
# All 256 colours: of 16 or fewer Pillow makes a file of 4 bits a pixel, in which 255 becomes 15.
PALETTE = np.array([*COLOURS] + [(224, 224, 192)] * (256 - len(COLOURS)), np.uint8).tobytes()


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_pairs(folder, count, height):
    lines = []
    with tarfile.open(folder / "pairs.tar", "w") as tar:
        for number in range(count):
            scene = draw(number, height, height * 4 // 3)
            names = [f"ai_{number // 8:03}/frame.{number:04}.{kind}.png" for kind in ("rgb", "depth")]
            for name, pixels in zip(names, (scene.rgb, scene.depth), strict=True):
                member = tarfile.TarInfo("./" + name)
                data = png(pixels)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            lines.append(" ".join(names))
    (folder / "list.txt").write_text("\n".join(lines) + "\n")


def write_segmentation(folder, count, height):
    rng = np.random.default_rng(7)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        shape = np.array(SHAPES[rng.integers(len(SHAPES))])
        size = np.rint(shape / shape.min() * height * rng.uniform(0.7, 1.3)).astype(int)
        scene = draw(1000 + number, *size)
        Image.fromarray(scene.rgb).save(folder / "images" / f"{number:04}.jpg", quality=92)
        mask = Image.fromarray(scene.mask)
        mask.putpalette(PALETTE)
        mask.save(folder / "masks" / f"{number:04}.png")


def write_classes(folder, count, height):
    for number in range(count):
        kind = ("ball", "box", "can")[number % 3]
        part = folder / "classes" / ("val" if number % 4 == 3 else "train") / kind
        part.mkdir(parents=True, exist_ok=True)
        scene = draw(2000 + number, height, height * 4 // 3, only=kind)
        Image.fromarray(scene.rgb).save(part / f"{number:04}.jpg", quality=92)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--count", type=int, default=64, help="samples of each kind")
    ask.add_argument("--height", type=int, default=64, help="in pixels, of most images")
    args = ask.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    write_pairs(args.folder, args.count, args.height)
    write_segmentation(args.folder, args.count, args.height)
    write_classes(args.folder, args.count, args.height)
    print(f"{args.folder}: {args.count} pairs, as many images with masks, as many in folders of classes")


if __name__ == "__main__":
    main()
