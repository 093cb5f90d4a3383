"""`try_out`: size, quality and decoding speed of a pack, from a few samples that are converted in memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.data import Dataset
from headrace.dropins import ImageReader
from headrace.errors import HeadraceError
from headrace.pack.conversion import Form, ImageConverter, PackOptions
from headrace.pack.members import PackMember, SampleReader
from headrace.pack.packing import cut, estimated, sample_order, sample_pool
from headrace.pack.quality import psnr, ssim
from headrace.views import RandomResizedCrop


@dataclass(frozen=True)
class TrialReport:
    """Sizes and decoding speed of a few samples before and after their conversion."""

    samples: int
    source_bytes: int
    bytes: int
    decode_before_s: float | None
    """CPU time in which one core decodes random crops of the originals; None if there are no images."""
    decode_after_s: float | None
    psnr_db: float | None
    """Median PSNR of the packed pictures against the resized originals; None if no picture was encoded anew."""
    ssim: float | None
    """Median SSIM of the same pictures."""
    estimated_bytes: int
    """Estimated bytes of the whole pack."""
    shards: int


def try_out(dataset: Dataset, options: PackOptions, *, threads: int | None = None) -> TrialReport:
    """Convert a few samples in memory and compare their sizes and decoding speed, without writing anything."""
    reader = SampleReader(dataset, ImageConverter(options))
    with sample_pool(reader.dataset, reader.files, threads) as pool:
        estimate = estimated(reader, pool)
    cuts, order = cut(estimate.sizes, options), sample_order(len(dataset), options.shuffle)
    first = next(iter(reader.files))
    read = [reader.read(first, int(order[at])) if members else None
            for at, members in zip(estimate.tried, estimate.members, strict=True)]  # fmt: skip
    pairs = zip(read, estimate.members, strict=True)
    pictures = [(data, members[0]) for data, members in pairs if data is not None]
    before, after = _decode_s([data for data, _ in pictures]), _decode_s([member.data for _, member in pictures])
    psnr_db, similarity = _quality(reader.converter, pictures)
    return TrialReport(
        len(estimate.tried),
        int(estimate.source[estimate.tried].sum()),
        sum(len(member.data) for members in estimate.members for member in members),
        before,
        after,
        psnr_db,
        similarity,
        int(estimate.sizes.sum()),
        len(cuts) - 1,
    )


def _decode_s(pictures: Sequence[bytes]) -> float | None:
    """Return CPU seconds in which this thread crops each picture at random to 224 × 224, the best of three rounds."""
    reader = ImageReader(view=RandomResizedCrop(224), output="numpy")
    rounds = []
    for _ in range(3):
        rng = np.random.default_rng(0)
        begun_s = time.thread_time()
        try:
            for data in pictures:
                reader(data, rng=rng)
        except HeadraceError:
            return None
        rounds.append(time.thread_time() - begun_s)
    return min(rounds) if pictures else None


def _quality(
    converter: ImageConverter, pictures: Sequence[tuple[bytes, PackMember]]
) -> tuple[float, float] | tuple[None, None]:
    """Return the median PSNR and SSIM of the photographs that were encoded anew."""
    if converter.options.form is Form.lossless:
        return None, None
    whole = ImageReader(output="numpy", exif=True)
    photographs = [(data, member.data) for data, member in pictures if member.suffix.endswith((".jpg", ".y4m"))]
    pairs = [(converter.target(data), whole(packed)) for data, packed in photographs]
    changed = [(target, found) for target, found in pairs if not np.array_equal(target, found)]
    if not changed:
        return None, None
    psnr_db, similarity = (statistics.median(measure(*pair) for pair in changed) for measure in (psnr, ssim))
    return psnr_db, similarity
