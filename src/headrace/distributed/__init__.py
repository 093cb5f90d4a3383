"""Several ranks of one training run: DistributedDataParallel, SyncBatchNorm and seeds."""

from __future__ import annotations

from headrace.distributed.process_group import Ranks, start

__all__ = ["Ranks", "start"]
