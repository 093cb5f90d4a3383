"""Several ranks of one training run: DistributedDataParallel, SyncBatchNorm and seeds.

Used by training scripts. Read `process_group.py` first.
"""

from __future__ import annotations

try:
    from headrace.distributed.process_group import Ranks, start
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("headrace.distributed needs PyTorch: pip install torch", name="torch") from error

__all__ = ["Ranks", "start"]
