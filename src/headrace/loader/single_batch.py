"""`first_batch`: a loader's first batch, made within one call."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import UsageError
from headrace.loader.bad_samples import BadSamples
from headrace.loader.batch_memory import ProcessBlocks
from headrace.loader.loader import Loader
from headrace.loader.recipe import Batch
from headrace.loader.step_maker import StepMaker
from headrace.plan import UniformPlan

# New memory for each call costs page faults: 8 % of the time of 256 photos.
_memory = ProcessBlocks(most_idle=2)


def first_batch(loader: Loader, epoch: int, *, leaves_out: bool = False) -> Batch:
    """Return the first batch of an epoch, without a pass: all threads end with the call.

    `leaves_out`: leave bad samples out, all of them if need be. `device` and `cache` do not apply.

    Raises UsageError for a view that differs from batch to batch and for data in stores, and the errors of samples.
    """
    recipe = replace(loader._feed.recipe, leaves_out=leaves_out)
    if not isinstance(recipe.plan, UniformPlan):
        raise UsageError("view: expected one that is drawn for each sample, got RandomScale, drawn for a whole batch")
    if recipe.is_remote:
        raise UsageError("expected bytes or local files, got addresses in stores; load them with a Loader")
    bad = BadSamples(samples=recipe.plan.length, max_bad=recipe.max_bad, quarantine=None)
    maker = StepMaker(recipe, _memory, bad)
    try:
        return maker.make(epoch, 0)[1]
    finally:
        maker.close()
