"""What does each augmentation cost, beside torchvision v2 on uint8 tensors, Pillow and OpenCV, on one thread?

A 224x224 RGB image in memory, values smooth as in photographs. Ours are measured in this process; the peers in one of
ENVIRONMENT, a Python that has torch, torchvision, Pillow and OpenCV (`make bench-recipes` installs one), each library
with one thread. Rounds take turns: of each the least time of repeated calls, of all the median, in nanoseconds a pixel,
and how many times as long the fastest peer takes.

    python benchmarks/augmentations.py --environment PYTHON [--rounds 5] [--size 224] [--level best]

Ours is what an operation adds to a chain: the canvas lies in the core's cache, as it does behind the crop. Peers make a
new image, as their functions do. OpenCV's column is the fastest of its functions that does the operation to RGB: a
look-up for Solarize, Equalize a channel at a time. `copy` is the bound of memory: a copy of the canvas by numpy, and of
the peers' image by their own means. Recipes are means over 24 draws.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

PEERS = ("torchvision", "Pillow", "OpenCV")
DRAWS = 24
Calls = dict[str, dict[str, list[Callable[[], object]]]]
"""By operation and library: calls whose mean counts."""


def picture(size: int) -> np.ndarray:
    """Noise under a moving mean of five by five pixels."""
    noise = np.random.default_rng(0).integers(0, 256, (size + 4, size + 4, 3)).astype(np.float64)
    sums = sum(noise[y : y + size, x : x + size] for y in range(5) for x in range(5))
    return np.clip(128 + (np.asarray(sums) / 25 - 128) * 4, 0, 255).astype(np.uint8)


def seconds(call: Callable[[], object]) -> float:
    """Return the least time of repeated calls: at least 3 of them, and some milliseconds."""
    taken: list[float] = []
    while len(taken) < 3 or (sum(taken) < 0.01 and len(taken) < 100):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken)


def own_round(size: int, level: str) -> dict[str, dict[str, float]]:
    """Seconds that each chain of ours adds: of nine times the chain, less that of one, over eight."""
    import headrace as hr
    from headrace import _core
    from headrace.augment import compile_augment

    image = picture(size)
    canvas, other = np.zeros((size, size, 4), np.uint8), np.zeros((size, size, 4), np.uint8)
    described: dict[str, Any] = {
        "brightness": hr.ColorJitter(brightness=(1.3, 1.3)),
        "contrast": hr.ColorJitter(contrast=(1.3, 1.3)),
        "saturation": hr.ColorJitter(saturation=(1.3, 1.3)),
        "hue": hr.ColorJitter(hue=(0.07, 0.07)),
        "grayscale": hr.RandomGrayscale(p=1),
        "invert": hr.RandomInvert(p=1),
        "solarize": hr.RandomSolarize(128, p=1),
        "posterize": hr.RandomPosterize(4, p=1),
        "autocontrast": hr.RandomAutocontrast(p=1),
        "equalize": hr.RandomEqualize(p=1),
        "sharpness": hr.RandomAdjustSharpness(1.5, p=1),
        "blur 23, sigma 0.5": hr.GaussianBlur(23, sigma=0.5),
        "blur 23, sigma 2": hr.GaussianBlur(23, sigma=2.0),
        "channel permutation": hr.RandomChannelPermutation(),
        "rotation, bilinear": hr.RandomRotation((30, 30)),
        "rotation, nearest": hr.RandomRotation((30, 30), interpolation="nearest"),
        "perspective, bilinear": hr.RandomPerspective(0.5, p=1),
        "elastic, bilinear": hr.ElasticTransform(),
        "ColorJitter 0.4 0.4 0.4 0.1": hr.ColorJitter(0.4, 0.4, 0.4, 0.1),
        "RandAugment 2, 9": hr.RandAugment(2, 9),
        "TrivialAugmentWide": hr.TrivialAugmentWide(),
        "AutoAugment": hr.AutoAugment(),
        "AugMix": hr.AugMix(),
    }

    def added(program: Any, draw: int) -> float:
        first, *others = (
            _core.draw_chain(program, 1, 9 * draw + number, 0, width=size, height=size) for number in range(9)
        )
        more = [operation for chain in others for operation in chain]  # other draws: elastic noise is kept for one
        return (
            seconds(lambda: _core.apply_chain(image, first + more, level=level))
            - seconds(lambda: _core.apply_chain(image, first, level=level))
        ) / 8

    found = {"copy": {"headrace": seconds(lambda: np.copyto(other, canvas))}}
    for name, description in described.items():
        compiled = compile_augment("benchmark", description)
        assert compiled is not None
        program = compiled.native
        draws = DRAWS if name[0].isupper() else 1
        found[name] = {"headrace": statistics.fmean(added(program, draw) for draw in range(draws))}
    return found


def peer_calls(size: int) -> Calls:
    """The same by the peers' functions; recipes by torchvision's transforms."""
    import cv2
    import torch
    from PIL import Image, ImageEnhance, ImageFilter, ImageOps
    from torchvision.transforms import InterpolationMode, v2
    from torchvision.transforms.v2 import functional as tv

    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    rgb = picture(size)
    tensor, pil = torch.from_numpy(rgb).permute(2, 0, 1).contiguous(), Image.fromarray(rgb)
    table, mask = np.arange(256, dtype=np.uint8)[::-1].copy(), np.full_like(rgb, 0xF0)
    angle = cv2.getRotationMatrix2D((size / 2, size / 2), 30, 1)
    corners = [[0, 0], [size - 1, 0], [size - 1, size - 1], [0, size - 1]]
    moved = [[size // 5, size // 6], [size - 20, 9], [size - 30, size - 7], [12, size - 40]]
    tilt = cv2.getPerspectiveTransform(np.float32(corners), np.float32(moved))
    shifts = np.random.default_rng(0).uniform(-1, 1, (2, size, size)).astype(np.float32)
    bilinear, nearest = InterpolationMode.BILINEAR, InterpolationMode.NEAREST

    def grey() -> np.ndarray:
        return cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)

    def contrast() -> np.ndarray:
        return cv2.convertScaleAbs(rgb, alpha=1.3, beta=-0.3 * cv2.mean(grey())[0])

    def turned() -> np.ndarray:
        hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
        return cv2.cvtColor(cv2.LUT(hsv, tables), cv2.COLOR_HSV2RGB)

    def elastic() -> np.ndarray:
        dx, dy = (cv2.GaussianBlur(shift, (41, 41), 5) * 50 for shift in shifts)
        across, down = np.meshgrid(np.arange(size, dtype=np.float32), np.arange(size, dtype=np.float32))
        return cv2.remap(rgb, across + dx, down + dy, cv2.INTER_LINEAR)

    def drawn(transform: Callable[[object], object], image: object, draw: int) -> None:
        torch.default_generator.manual_seed(draw)  # repeated calls draw the same
        transform(image)

    same = np.arange(256, dtype=np.uint8)
    tables = np.stack([(same + 13) % 180, same, same], -1)[None].astype(np.uint8)
    one: dict[str, tuple[Callable[[], object] | None, ...]] = {
        "copy": (tensor.clone, pil.copy, rgb.copy),
        "brightness": (
            lambda: tv.adjust_brightness(tensor, 1.3),
            lambda: ImageEnhance.Brightness(pil).enhance(1.3),
            lambda: cv2.convertScaleAbs(rgb, alpha=1.3),
        ),
        "contrast": (
            lambda: tv.adjust_contrast(tensor, 1.3),
            lambda: ImageEnhance.Contrast(pil).enhance(1.3),
            contrast,
        ),
        "saturation": (
            lambda: tv.adjust_saturation(tensor, 1.3),
            lambda: ImageEnhance.Color(pil).enhance(1.3),
            lambda: cv2.addWeighted(rgb, 1.3, cv2.cvtColor(grey(), cv2.COLOR_GRAY2RGB), -0.3, 0),
        ),
        "hue": (lambda: tv.adjust_hue(tensor, 0.07), None, turned),
        "grayscale": (
            lambda: tv.rgb_to_grayscale(tensor, 3),
            lambda: pil.convert("L").convert("RGB"),
            lambda: cv2.cvtColor(grey(), cv2.COLOR_GRAY2RGB),
        ),
        "invert": (lambda: tv.invert(tensor), lambda: ImageOps.invert(pil), lambda: cv2.bitwise_not(rgb)),
        "solarize": (
            lambda: tv.solarize(tensor, 128),
            lambda: ImageOps.solarize(pil, 128),
            lambda: cv2.LUT(rgb, table),
        ),
        "posterize": (
            lambda: tv.posterize(tensor, 4),
            lambda: ImageOps.posterize(pil, 4),
            lambda: cv2.bitwise_and(rgb, mask),
        ),
        "autocontrast": (
            lambda: tv.autocontrast(tensor),
            lambda: ImageOps.autocontrast(pil),
            lambda: cv2.merge([cv2.normalize(c, None, 0, 255, cv2.NORM_MINMAX) for c in cv2.split(rgb)]),
        ),
        "equalize": (
            lambda: tv.equalize(tensor),
            lambda: ImageOps.equalize(pil),
            lambda: cv2.merge([cv2.equalizeHist(c) for c in cv2.split(rgb)]),
        ),
        "sharpness": (
            lambda: tv.adjust_sharpness(tensor, 1.5),
            lambda: ImageEnhance.Sharpness(pil).enhance(1.5),
            lambda: cv2.filter2D(rgb, -1, np.full((3, 3), 1 / 9, np.float32)),
        ),
        "blur 23, sigma 0.5": (
            lambda: tv.gaussian_blur(tensor, [23, 23], [0.5, 0.5]),
            lambda: pil.filter(ImageFilter.GaussianBlur(0.5)),
            lambda: cv2.GaussianBlur(rgb, (23, 23), 0.5),
        ),
        "blur 23, sigma 2": (
            lambda: tv.gaussian_blur(tensor, [23, 23], [2.0, 2.0]),
            lambda: pil.filter(ImageFilter.GaussianBlur(2)),
            lambda: cv2.GaussianBlur(rgb, (23, 23), 2),
        ),
        "channel permutation": (
            lambda: tv.permute_channels(tensor, [2, 1, 0]),
            None,
            lambda: cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR),
        ),
        "rotation, bilinear": (
            lambda: tv.rotate(tensor, 30, bilinear),
            lambda: pil.rotate(30, Image.Resampling.BILINEAR),
            lambda: cv2.warpAffine(rgb, angle, (size, size), flags=cv2.INTER_LINEAR),
        ),
        "rotation, nearest": (
            lambda: tv.rotate(tensor, 30, nearest),
            lambda: pil.rotate(30, Image.Resampling.NEAREST),
            lambda: cv2.warpAffine(rgb, angle, (size, size), flags=cv2.INTER_NEAREST),
        ),
        "perspective, bilinear": (
            lambda: tv.perspective(tensor, corners, moved, bilinear),
            lambda: pil.transform(
                (size, size), Image.Transform.PERSPECTIVE, [*tilt.ravel()[:8]], Image.Resampling.BILINEAR
            ),
            lambda: cv2.warpPerspective(rgb, tilt, (size, size), flags=cv2.INTER_LINEAR),
        ),
        "elastic, bilinear": (lambda: v2.ElasticTransform()(tensor), None, elastic),
    }
    calls = {
        name: {peer: [call] for peer, call in zip(PEERS, row, strict=True) if call is not None}
        for name, row in one.items()
    }
    recipes = {
        "ColorJitter 0.4 0.4 0.4 0.1": v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        "RandAugment 2, 9": v2.RandAugment(2, 9, interpolation=bilinear),
        "TrivialAugmentWide": v2.TrivialAugmentWide(interpolation=bilinear),
        "AutoAugment": v2.AutoAugment(interpolation=bilinear),
        "AugMix": v2.AugMix(interpolation=bilinear),
    }
    for name, transform in recipes.items():
        calls[name] = {
            "torchvision": [partial(drawn, transform, tensor, draw) for draw in range(DRAWS)],
            "Pillow": [partial(drawn, transform, pil, draw) for draw in range(DRAWS)],
        }
    return calls


def serve_peers(size: int) -> None:
    """Answer each line of the input with a round: seconds by operation and peer."""
    calls = peer_calls(size)
    for _ in sys.stdin:
        found = {
            name: {peer: statistics.fmean(map(seconds, some)) for peer, some in row.items()}
            for name, row in calls.items()
        }
        print(json.dumps(found), flush=True)


def print_table(rounds: list[dict[str, dict[str, float]]], pixels: int) -> None:
    columns = ("headrace", *PEERS)
    print(f"\n{'ns a pixel':29}" + "".join(f"{name:>13}" for name in columns) + f"{'best / ours':>13}")
    for name in rounds[0]:
        cells, ratio = "", ""
        for column in columns:
            have = [found[name][column] for found in rounds if column in found[name]]
            cells += f"{statistics.median(have) / pixels * 1e9:13.3f}" if have else f"{'-':>13}"
        if len(rounds[0][name]) > 1:
            own, *peers = ([found[name][column] for found in rounds] for column in columns if column in rounds[0][name])
            best = min(peers, key=statistics.median)
            ratio = f"{statistics.median(b / o for b, o in zip(best, own, strict=True)):13.1f}"
        print(f"{name:29}{cells}{ratio}")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--environment", help="Python that has the peers; ours alone without it")
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--size", type=int, default=224)
    ask.add_argument("--level", default="best")
    ask.add_argument("--serve-peers", action="store_true", help=argparse.SUPPRESS)
    args = ask.parse_args()
    if args.serve_peers:
        serve_peers(args.size)
        return
    peers = None
    if args.environment is not None:
        command = [args.environment, __file__, "--serve-peers", "--size", str(args.size)]
        peers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rounds = []
    for _ in range(args.rounds):
        found = own_round(args.size, args.level)
        if peers is not None:
            assert peers.stdin is not None
            assert peers.stdout is not None
            print(file=peers.stdin, flush=True)
            for name, row in json.loads(peers.stdout.readline()).items():
                found[name] |= row
        rounds.append(found)
    if peers is not None:
        peers.communicate()
    print(f"{args.size}x{args.size} RGB, {args.rounds} rounds, one thread; {platform.machine()}, level {args.level},")
    print(f"load {os.getloadavg()[0]:.1f}")
    print_table(rounds, args.size**2)


if __name__ == "__main__":
    main()
