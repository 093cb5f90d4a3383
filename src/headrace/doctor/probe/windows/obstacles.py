"""Why replaying batches would be wrong in a run, or cannot be done."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..training.training import Training
    from .observed import Observed


def obstacle(training: Training, observed: Observed, steps: int) -> str:
    """Half a sentence, of this process; empty where nothing speaks against `steps` more steps."""
    if training.has_said("capture"):
        return "steps run as CUDA graphs, which read batches from where they were when they were captured"
    if training.elsewhere.threads and not training.elsewhere.is_handed_over:
        return "batches are fetched in another thread, and it is not seen how the one that trains gets them"
    if _is_unjoined(training):
        return "there are several ranks, which torch.distributed does not join"
    kept = (observed.kept[loader] for loader in observed.loaders)
    return next((one.why_not for one in kept if one.why_not), "") or _scheduler(training, steps)


def _is_unjoined(training: Training) -> bool:
    ranks = os.environ.get("WORLD_SIZE", "")
    return ranks.isdigit() and int(ranks) > 1 and training.world_size() == 1


def _scheduler(training: Training, steps: int) -> str:
    """One raises when it is stepped beyond its end, which the loader's own end keeps it from."""
    for scheduler in training.schedulers:
        total, at = _whole(scheduler, "total_steps"), _whole(scheduler, "last_epoch")
        if total is None or at is None:
            continue
        a_step = at / max(training.steps_seen - 1, 1)  # it follows the step that has just ended
        if at + a_step * (steps + 1) > total:
            left = total - at
            return f"{type(scheduler).__name__} ends after {left} more of its steps, and raises beyond that"
    return ""


def _whole(scheduler: Any, name: str) -> int | None:
    value = getattr(scheduler, name, None)
    return value if isinstance(value, int) else None
