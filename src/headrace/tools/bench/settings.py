"""What is compared, and how many batches a run takes: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Output = Literal["uint8", "float32"]

CROP_PX = 224
FLIP = 0.5
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILES_AT_MOST = 2000  # so that a large dataset stays in the page cache and the loaders are compared, not the disk


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One comparison: RandomResizedCrop(224) and flip, `threads` cores and workers for each loader."""

    path: str
    threads: int
    batch_size: int = 256
    output: Output = "uint8"
    rounds: int = 3
    images: int = 6000
    seed: int = 0
    step_ms: float = 0.0
    """That a training step waits on its device after each batch."""
    against: str | None = None
    """`module:make_loader` of the user's, in the place of torch's DataLoader."""

    @property
    def loaders(self) -> tuple[str, str]:
        """Headrace and what it is compared with."""
        return "headrace", "torch" if self.against is None else "yours"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The batches of one run: `warm` before the clock starts, `counted` while it runs, `tail` after it stops.

    The tail keeps every worker busy to the end of the counted part, so that neither loader's drain is timed.
    """

    warm: int
    counted: int
    tail: int

    @property
    def batches(self) -> int:
        return self.warm + self.counted + self.tail


def window(settings: Settings) -> Window:
    """Cut a run: warm-up and tail span what 2 batches a worker hold in flight; at least `images` are counted."""
    in_flight = max(6, 2 * settings.threads)
    counted = max(-(-settings.images // settings.batch_size), 2 * in_flight)
    return Window(warm=in_flight, counted=counted, tail=in_flight)


def samples(available: int, settings: Settings, *, most: int = FILES_AT_MOST) -> NDArray[np.int64]:
    """Which samples a run reads: one long epoch over at most so many of them, evenly picked and as often as needed.

    One epoch, because the end of each would stall a loader that fills its queue anew, and a small dataset has many.
    """
    kept = min(available, most)
    picked = np.arange(kept, dtype=np.int64) * available // kept
    return np.resize(picked, window(settings).batches * settings.batch_size)
