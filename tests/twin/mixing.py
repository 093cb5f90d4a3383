"""MixUp and CutMix of a whole global batch, as docs/augmentation.md and `augment/mixing_draws.py` describe them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.exact_math import exact_exp, exact_log
from twin.rng import Stream, below, uniform

STAGE = 253


@dataclass
class Kind:
    """What is drawn: "mixup" or "cutmix"."""

    name: str
    alpha: float = 1.0
    p: float = 1.0
    by_pair: bool = False


def open_unit(bits: int) -> float:
    return ((bits >> 12) + 0.5) / 2**52


def beta(alpha: float, stream: Stream) -> float:
    if alpha == 1:
        return uniform(stream.at(2)[0], 0, 1)
    for draw in range(2, 128):
        u, v = (open_unit(bits) for bits in stream.at(draw))
        if alpha < 1:
            x, y = exact_log(u) / alpha, exact_log(v) / alpha
            if (exact_exp(x) if x > -700 else 0) + (exact_exp(y) if y > -700 else 0) <= 1:
                return 0.0 if y - x > 700 else 1 / (1 + (exact_exp(y - x) if y - x > -700 else 0))
            continue
        total = 2 * alpha
        slope = math.sqrt((total - 2) / (2 * alpha * alpha - total))
        odds = slope * (exact_log(u) - exact_log(1 - u))
        w = alpha * exact_exp(odds)
        z, r = u * u * v, (alpha + 1 / slope) * odds - 1.3862943611198906
        s = alpha + r - w
        quick = s + 2.6094379124341003 >= 5 * z
        if quick or s >= exact_log(z) or r + total * (exact_log(total) - exact_log(alpha + w)) >= exact_log(z):
            return w / (alpha + w)
    return 0.5


def mixed(
    images: NDArray[np.generic],
    labels: NDArray[np.int64],
    kinds: list[Kind],
    *,
    key: int,
    step: int,
    classes: int,
    weights: list[float] | None = None,
    smoothing: float = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Return the images [N, C, H, W] of a global batch in exact arithmetic, not rounded, and its soft labels."""
    out, soft = images.astype(np.float64), np.zeros((len(images), classes))
    hot = np.eye(classes)[labels] * (1 - smoothing) + smoothing / classes
    height, width = images.shape[2:]
    for i in range(len(images)):
        stream = Stream(key, step, i // 2, 0, STAGE)
        of_batch = Stream(key, step, 0, 0, STAGE)
        chooser = stream if all(kind.by_pair for kind in kinds) else of_batch
        shares = np.cumsum(weights or [1.0] * len(kinds)) / sum(weights or [1.0] * len(kinds))
        kind = kinds[int(np.argmax(shares > uniform(chooser.at(0)[1], 0, 1)))]
        drawn = stream if kind.by_pair else of_batch
        share, j = 1.0, i ^ 1
        if uniform(drawn.at(0)[0], 0, 1) < kind.p:
            lam = beta(kind.alpha, drawn)
            if kind.name == "mixup":
                share = math.floor(lam * 32768 + 0.5) / 32768
                out[i] = images[i] * np.float64(share) + images[j] * np.float64(1 - share)
            else:
                x, y = (below(bits, side) for bits, side in zip(drawn.at(1), (width, height), strict=True))
                half_x, half_y = (int(0.5 * math.sqrt(1 - lam) * side) for side in (width, height))
                rows = slice(max(y - half_y, 0), min(y + half_y, height))
                box = rows, slice(max(x - half_x, 0), min(x + half_x, width))
                out[i][:, *box] = images[j][:, *box]
                share = 1 - out[i][0][box].size / (height * width)
        soft[i] = share * hot[i] + (1 - share) * hot[j]
    return out, soft.astype(np.float32)
