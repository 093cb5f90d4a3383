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

import json
import statistics
import subprocess
import sys
from functools import partial
from statistics import fmean

import numpy as np
from harness import arguments, machine, ratio
from harness import seconds as wall_s

PEERS = ("torchvision", "Pillow", "OpenCV")
DRAWS = 24


def picture(size):
    """Noise under a moving mean of five by five pixels."""
    noise = np.random.default_rng(0).integers(0, 256, (size + 4, size + 4, 3)).astype(np.float64)
    sums = sum(noise[y : y + size, x : x + size] for y in range(5) for x in range(5))
    return np.clip(128 + (np.asarray(sums) / 25 - 128) * 4, 0, 255).astype(np.uint8)


def seconds(call):
    """Return the least time of repeated calls: at least 3 of them, and some milliseconds."""
    taken = []
    while len(taken) < 3 or (sum(taken) < 0.01 and len(taken) < 100):
        taken.append(wall_s(call))
    return min(taken)


def own_round(size, level):
    """Return the seconds that each chain of ours adds: of nine times the chain, less that of one, over eight."""
    import headrace as hr
    from headrace import _core
    from headrace.augment import compile_augment

    image = picture(size)
    canvas, other = np.zeros((size, size, 4), np.uint8), np.zeros((size, size, 4), np.uint8)
    described = {
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

    def added(program, draw):
        numbers, sides = range(9 * draw, 9 * draw + 9), {"width": size, "height": size}
        first, *others = (_core.draw_chain(program, 1, number, 0, **sides) for number in numbers)
        more = [operation for chain in others for operation in chain]  # other draws: elastic noise is cached for one
        nine, one = (
            seconds(lambda chain=chain: _core.apply_chain(image, chain, level=level)) for chain in (first + more, first)
        )
        return (nine - one) / 8

    found = {"copy": {"headrace": seconds(lambda: np.copyto(other, canvas))}}
    for name, description in described.items():
        program, draws = compile_augment("benchmark", description).native, DRAWS if name[0].isupper() else 1
        found[name] = {"headrace": fmean(added(program, draw) for draw in range(draws))}
    return found


def peer_calls(size):
    """Return the same by operation and peer: calls whose mean counts. Recipes are torchvision's transforms."""
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

    def grey():
        return cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)

    def turned():
        hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
        return cv2.cvtColor(cv2.LUT(hsv, tables), cv2.COLOR_HSV2RGB)

    def elastic():
        dx, dy = (cv2.GaussianBlur(shift, (41, 41), 5) * 50 for shift in shifts)
        across, down = np.meshgrid(np.arange(size, dtype=np.float32), np.arange(size, dtype=np.float32))
        return cv2.remap(rgb, across + dx, down + dy, cv2.INTER_LINEAR)

    def drawn(transform, image, draw):
        torch.default_generator.manual_seed(draw)  # repeated calls draw the same
        transform(image)

    def by_channel(work):
        return lambda: cv2.merge([work(channel) for channel in cv2.split(rgb)])

    def enhanced(kind, factor):
        return lambda: kind(pil).enhance(factor)

    same, square = np.arange(256, dtype=np.uint8), (size, size)
    tables = np.stack([(same + 13) % 180, same, same], -1)[None].astype(np.uint8)
    one = {
        "copy": (tensor.clone, pil.copy, rgb.copy),
        "brightness": (lambda: tv.adjust_brightness(tensor, 1.3), enhanced(ImageEnhance.Brightness, 1.3),
                       lambda: cv2.convertScaleAbs(rgb, alpha=1.3)),
        "contrast": (lambda: tv.adjust_contrast(tensor, 1.3), enhanced(ImageEnhance.Contrast, 1.3),
                     lambda: cv2.convertScaleAbs(rgb, alpha=1.3, beta=-0.3 * cv2.mean(grey())[0])),
        "saturation": (lambda: tv.adjust_saturation(tensor, 1.3), enhanced(ImageEnhance.Color, 1.3),
                       lambda: cv2.addWeighted(rgb, 1.3, cv2.cvtColor(grey(), cv2.COLOR_GRAY2RGB), -0.3, 0)),
        "hue": (lambda: tv.adjust_hue(tensor, 0.07), None, turned),
        "grayscale": (lambda: tv.rgb_to_grayscale(tensor, 3), lambda: pil.convert("L").convert("RGB"),
                      lambda: cv2.cvtColor(grey(), cv2.COLOR_GRAY2RGB)),
        "invert": (lambda: tv.invert(tensor), lambda: ImageOps.invert(pil), lambda: cv2.bitwise_not(rgb)),
        "solarize": (lambda: tv.solarize(tensor, 128), lambda: ImageOps.solarize(pil, 128),
                     lambda: cv2.LUT(rgb, table)),
        "posterize": (lambda: tv.posterize(tensor, 4), lambda: ImageOps.posterize(pil, 4),
                      lambda: cv2.bitwise_and(rgb, mask)),
        "autocontrast": (lambda: tv.autocontrast(tensor), lambda: ImageOps.autocontrast(pil),
                         by_channel(lambda channel: cv2.normalize(channel, None, 0, 255, cv2.NORM_MINMAX))),
        "equalize": (lambda: tv.equalize(tensor), lambda: ImageOps.equalize(pil), by_channel(cv2.equalizeHist)),
        "sharpness": (lambda: tv.adjust_sharpness(tensor, 1.5), enhanced(ImageEnhance.Sharpness, 1.5),
                      lambda: cv2.filter2D(rgb, -1, np.full((3, 3), 1 / 9, np.float32))),
        "blur 23, sigma 0.5": (lambda: tv.gaussian_blur(tensor, [23, 23], [0.5, 0.5]),
                               lambda: pil.filter(ImageFilter.GaussianBlur(0.5)),
                               lambda: cv2.GaussianBlur(rgb, (23, 23), 0.5)),
        "blur 23, sigma 2": (lambda: tv.gaussian_blur(tensor, [23, 23], [2.0, 2.0]),
                             lambda: pil.filter(ImageFilter.GaussianBlur(2)),
                             lambda: cv2.GaussianBlur(rgb, (23, 23), 2)),
        "channel permutation": (lambda: tv.permute_channels(tensor, [2, 1, 0]), None,
                                lambda: cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)),
        "rotation, bilinear": (lambda: tv.rotate(tensor, 30, bilinear),
                               lambda: pil.rotate(30, Image.Resampling.BILINEAR),
                               lambda: cv2.warpAffine(rgb, angle, square, flags=cv2.INTER_LINEAR)),
        "rotation, nearest": (lambda: tv.rotate(tensor, 30, nearest), lambda: pil.rotate(30, Image.Resampling.NEAREST),
                              lambda: cv2.warpAffine(rgb, angle, square, flags=cv2.INTER_NEAREST)),
        "perspective, bilinear": (
            lambda: tv.perspective(tensor, corners, moved, bilinear),
            lambda: pil.transform(square, Image.Transform.PERSPECTIVE, [*tilt.ravel()[:8]], Image.Resampling.BILINEAR),
            lambda: cv2.warpPerspective(rgb, tilt, square, flags=cv2.INTER_LINEAR)),
        "elastic, bilinear": (lambda: v2.ElasticTransform()(tensor), None, elastic),
    }  # fmt: skip
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
            peer: [partial(drawn, transform, image, draw) for draw in range(DRAWS)]
            for peer, image in (("torchvision", tensor), ("Pillow", pil))
        }
    return calls


def serve_peers(size):
    """Answer each line of the input with a round: seconds by operation and peer."""
    calls = peer_calls(size)
    for _ in sys.stdin:
        found = {name: {peer: fmean(map(seconds, some)) for peer, some in row.items()} for name, row in calls.items()}
        print(json.dumps(found), flush=True)


def print_table(rounds, pixels):
    columns = ("headrace", *PEERS)
    print(f"\n{'ns a pixel':29}" + "".join(f"{name:>13}" for name in columns) + f"{'best / ours':>13}")
    for name, row in rounds[0].items():
        have = {column: [found[name][column] for found in rounds] for column in columns if column in row}
        cells = [f"{statistics.median(have[c]) / pixels * 1e9:.3f}" if c in have else "-" for c in columns]
        own, *peers = have.values()
        cells += [f"{ratio(min(peers, key=statistics.median), own):.1f}"] if peers else []
        print(f"{name:29}" + "".join(f"{cell:>13}" for cell in cells))


def main():
    environment = {"help": "Python that has the peers; ours alone without it"}
    args = arguments(__doc__, environment=environment, rounds=5, size=224, level="best", serve_peers=False)
    if args.serve_peers:
        serve_peers(args.size)
        return
    peers, rounds = None, []
    if args.environment is not None:
        command = [args.environment, __file__, "--serve-peers", "--size", str(args.size)]
        peers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for _ in range(args.rounds):
        rounds.append(own_round(args.size, args.level))
        if peers is not None:
            print(file=peers.stdin, flush=True)
            for name, row in json.loads(peers.stdout.readline()).items():
                rounds[-1][name] |= row
    if peers is not None:
        peers.communicate()
    print(f"{args.size}x{args.size} RGB, {args.rounds} rounds, one thread, level {args.level}; {machine()}")
    print_table(rounds, args.size**2)


if __name__ == "__main__":
    main()
