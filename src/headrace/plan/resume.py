"""Whether a saved state belongs to a plan, and where the plan goes on."""

from __future__ import annotations

from dataclasses import dataclass

from headrace import _core
from headrace.errors import StateError
from headrace.plan.order import MAX_GLOBAL_BATCH, PLAN_VERSION
from headrace.plan.ranks import world_sizes
from headrace.plan.state import Planned, State


@dataclass(frozen=True)
class Resume:
    """The next batch is `step` of `epoch`. `warning` is text for the user, or None."""

    epoch: int
    step: int
    warning: str | None


_ONE_DRAW_OF_REPEATS = 1
"""The plan version whose samples stood where they stand now, and whose repeats in a selection shared a draw."""


def resume(
    state: State, plan: Planned, *, dataset: str, core: str, past_end: bool = False, repeats: bool = False
) -> Resume:
    """Where `plan` goes on from `state`.

    The world size may differ from the one that saved, as long as the global batch is the same. Raises StateError where
    the run that saved would have held other batches. Other codecs (`core`) only warn: the samples are the same, their
    pixels may differ in the last bits. So does a state of plan version 1 where the dataset `repeats` samples: those now
    have draws of their own. `past_end` also takes a state whose epoch has no step left (`step` is then
    `plan.steps`).
    """
    check_order(state, plan, dataset=dataset)
    _check_grouping(state.grouping, plan.grouping)
    _check_global_batch(state.global_batch, plan)
    told = [_codec_warning(state.core, core), _draws_warning(state.plan) if repeats else None]
    warning = ". ".join(each for each in told if each is not None)
    return Resume(state.epoch, _step(state, plan, past_end), warning or None)


def check_order(state: State, plan: Planned, *, dataset: str) -> None:
    """Raises StateError where the samples of the run that saved stood in another order."""
    afresh = "resume with the Headrace that saved it, or start the epoch afresh"
    if state.plan != _ONE_DRAW_OF_REPEATS:
        _check("plan version", state.plan, PLAN_VERSION, afresh)
    _check("random source version", state.rng, _core.RNG_VERSION, afresh)
    _check(
        "dataset", state.dataset, dataset, "open the dataset that the state was saved with; it may have changed since"
    )
    _check("length", state.length, plan.length, "open the dataset that the state was saved with")
    _check("seed", state.seed, plan.seed, f"pass seed={state.seed}")
    _check("shuffle", state.shuffle, plan.shuffle, f"pass shuffle={state.shuffle}")
    _check("remainder", state.remainder, plan.remainder, f"pass remainder={state.remainder!r}")


def _check(name: str, saved: object, here: object, hint: str) -> None:
    if saved != here:
        raise StateError(f"state: expected {name} {here!r} as in this loader, got {saved!r} in the state; {hint}")


def _check_grouping(saved: str, here: str) -> None:
    hint = "pass the buckets=, the RandomScale, the Budget and the pack= of the run that saved"
    if "rank_multiple" in saved:
        hint += "; a Budget is per rank, so divide the budget of all ranks by the world size, and name rank_multiple"
    if saved != here:
        raise StateError(
            f"state: expected batches by {here or 'batch_size alone'!r} as in this loader, got "
            f"{saved or 'batch_size alone'!r} in the state; {hint}"
        )


def _check_global_batch(saved: int, plan: Planned) -> None:
    if saved == plan.global_batch:
        return
    here = f"{plan.batch_size} x {plan.world_size} ranks = {plan.global_batch}"
    if not 1 <= saved <= MAX_GLOBAL_BATCH:
        hint = "no plan has such a batch; pass the saved dict unchanged"
    elif saved % plan.world_size == 0:
        hint = f"pass batch_size={saved // plan.world_size}"
    else:
        sizes = ", ".join(str(size) for size in world_sizes(saved))
        hint = f"{plan.world_size} ranks cannot split {saved} evenly; world sizes that can: {sizes}"
    raise StateError(f"state: expected global batch {here} as in this loader, got {saved} in the state; {hint}")


def _step(state: State, plan: Planned, past_end: bool) -> int:
    step, rest = divmod(state.samples, plan.global_batch)
    if rest or step >= plan.steps + past_end:
        raise StateError(
            f"state['samples']: expected a multiple of the global batch {plan.global_batch} below "
            f"{(plan.steps + past_end) * plan.global_batch}, got {state.samples}; pass the saved dict unchanged"
        )
    return step


def _draws_warning(saved: int) -> str | None:
    if saved != _ONE_DRAW_OF_REPEATS:
        return None
    return (
        f"this dataset's selection repeats samples, and the state was saved under plan version {saved}, where all "
        f"repeats of a sample shared one random draw; under version {PLAN_VERSION} each has its own. The run goes on "
        "at its position with the same samples, and repeats get other crops, flips, captions and rng than before"
    )


def _codec_warning(saved: str, here: str) -> str | None:
    if saved == here:
        return None
    return (
        f"this build decodes with {here}; the state was saved under {saved}. The samples are the same, but pixels may "
        "differ slightly from those of the run that saved"
    )
