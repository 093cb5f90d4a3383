"""Copies of cached batches that loops receive in place of their loaders' batches during replay windows."""

from __future__ import annotations

import time
from threading import current_thread
from typing import Any, Callable

from ..training.received_batches import FetchedBatch, ObservedPass
from ..training.replay import OVER, is_grad_enabled
from ..training.training import TrainingObserver, now

POLL_S = 0.002


def replayed(training: TrainingObserver, pass_: ObservedPass, otherwise: Callable[[], Any]) -> Any:
    """Return a copy in place of the pass's next batch, or `otherwise()` if there is none.

    Raises:
        StopIteration: The pass is over.
    """
    try:
        start = training.ask()
        batch = training.replay.take(pass_, start)
        copy = FetchedBatch(pass_.number, None, start, training.received())
        if batch is not OVER:
            gap = training.replay.gap_before(copy.start)
            if gap is not None:
                training.state.steps.leave_out(*gap)
            training.got(copy, is_grad_enabled())
    except Exception as error:
        training.thread.is_fetching = False
        training.windows.close()
        training.fault("replay", error)
        return otherwise()
    if batch is OVER:
        raise StopIteration
    return batch


def replayed_elsewhere(training: TrainingObserver, pass_: ObservedPass, otherwise: Callable[[], Any]) -> Any:
    """Return a copy in a thread that passes batches on; a pass never ends there.

    The thread never runs further ahead than before the window, since only the loader's pace may have bounded it.
    """
    while training.replay.is_on and training.elsewhere.is_far_ahead():
        time.sleep(POLL_S)
    start = now()
    try:
        batch = training.replay.copy(pass_)
        training.got_elsewhere(FetchedBatch(pass_.number, None, start, now()), current_thread().name)
    except Exception:  # the window has ended meanwhile
        return otherwise()
    return batch
