"""Position of a run as a few hundred bytes of JSON, and the check that a saved position belongs to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from headrace import _core
from headrace.errors import StateError
from headrace.plan.mixture import EpochPlan
from headrace.plan.order import MAX_GLOBAL_BATCH, PLAN_VERSION, world_sizes
from headrace.plan.uniform_plan import SamplePlan

STATE_VERSION = 3
"""Version of the dict. Raise it when a key is added, removed or changes its meaning."""
_WITHOUT_CONTENT = 2
"""Version of the dict without `content`, which is then unknown."""

_ONE_DRAW_OF_REPEATS = 1
"""Plan version with the samples in the same places as now, but one draw for all repeats of a sample in a selection."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Position of the consumer, and the plan that it belongs to.

    `samples` counts the samples consumed in `epoch` over all ranks, `global_batch` per step; the end of an epoch is
    (epoch + 1, 0). `grouping` describes the draws and a windowed order, or the buckets, scales and budget that cut the
    batches. `dataset` is the dataset's fingerprint, `content` pins its files' content ("": unknown). `core` has the
    codec versions, which decide the bits of pixels. `plan` and `rng` are the versions of the plan and of the random
    source.
    """

    plan: int = PLAN_VERSION
    rng: int = _core.RNG_VERSION
    dataset: str
    length: int
    seed: int
    shuffle: bool
    remainder: str
    grouping: str
    global_batch: int
    epoch: int
    samples: int
    core: str
    content: str

    def to_dict(self) -> dict[str, int | str | bool]:
        """Return the state as plain JSON values."""
        return {"version": STATE_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> State:
        """Read a state from `to_dict`. Raises StateError for anything else: nothing is filled in."""
        if not isinstance(data, Mapping):
            raise StateError(f"state: expected the dict that state_dict() gave, got {type(data).__name__}")
        if "counts" in data:  # a MixedState
            raise StateError(
                "state: expected the dict that a loader's state_dict() gave, got that of a mixture; pass it to the "
                "mixture"
            )
        version = data.get("version")
        if type(version) is not int or version not in (STATE_VERSION, _WITHOUT_CONTENT):
            raise StateError(
                f"state: expected version {STATE_VERSION}, got {version!r}; resume with the Headrace that saved it, or "
                "start the epoch afresh"
            )
        kinds = get_type_hints(cls)
        values = {name: value for name, value in data.items() if name != "version"}
        if version == _WITHOUT_CONTENT:
            values["content"] = ""
        check_state(values, kinds)
        return cls(**values)  # type: ignore[arg-type]  # each was checked against its field's type


_EXPECTED = {int: "an int from 0 to 2**64 - 1", str: "a str", bool: "a bool", list: "a list of str", dict: "a dict"}


def check_state(values: Mapping[str, object], kinds: Mapping[str, Any]) -> None:
    """Raise StateError unless `values` has exactly these keys, with values of these kinds (`type` or `type | None`)."""
    missing = sorted(kinds.keys() - values.keys())
    unknown = sorted(str(name) for name in values.keys() - kinds.keys())
    if missing or unknown:
        raise StateError(
            f"state: expected the keys that state_dict() gave, got missing {missing} and unknown {unknown}; pass the "
            "saved dict unchanged"
        )
    for name, hint in kinds.items():
        value = values[name]
        kind, *or_none = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind = get_origin(kind) or kind
        if or_none and value is None:
            continue
        too_far = type(value) is int and not 0 <= value < 1 << 64
        of_others = isinstance(value, list) and not all(type(each) is str for each in value)
        # type(), not isinstance(): True is an int to Python, and no state from to_dict holds it.
        if type(value) is not kind or too_far or of_others:
            expected = _EXPECTED[kind] + (" or None" if or_none else "")
            raise StateError(f"state[{name!r}]: expected {expected}, got {value!r}; pass the saved dict unchanged")


def state_after(plan: EpochPlan, *, epoch: int, steps: int, dataset: str, core: str, content: str = "") -> State:
    """Return the state once the consumer holds `steps` batches of `epoch`, the same on every rank.

    A short batch counts as a full one.
    """
    if steps == plan.steps:
        return state_at(plan, epoch=epoch + 1, samples=0, dataset=dataset, core=core, content=content)
    samples = steps * plan.global_batch
    return state_at(plan, epoch=epoch, samples=samples, dataset=dataset, core=core, content=content)


def state_at(
    plan: EpochPlan | SamplePlan, *, epoch: int, samples: int, dataset: str, core: str, content: str = ""
) -> State:
    """Return the state at a position of an epoch, which may be inside a batch of the plan."""
    return State(
        dataset=dataset,
        length=plan.length,
        seed=plan.seed,
        shuffle=plan.shuffle,
        remainder=plan.remainder,
        grouping=plan.grouping,
        global_batch=plan.global_batch,
        epoch=epoch,
        samples=samples,
        core=core,
        content=content,
    )


@dataclass(frozen=True)
class Resume:
    """Position at which a plan resumes: the next batch is `step` of `epoch`. `warning` is for the user, or None."""

    epoch: int
    step: int
    warning: str | None


def resume(
    state: State,
    plan: EpochPlan,
    *,
    dataset: str | None,
    core: str,
    past_end: bool = False,
    repeats: bool = False,
) -> Resume:
    """Return the position where `plan` resumes from `state`. None for `dataset` accepts any dataset of the same size.

    The world size may differ from the saved run's, as long as the global batch is the same. Other codecs (`core`) only
    warn: the samples are the same, their pixels may differ in the last bits. A state of plan version 1 also warns if
    the dataset `repeats` samples, which now have separate draws. `past_end` also accepts a state whose epoch has no
    step left (`step` is then `plan.steps`). Raises StateError if the saved run would have had other batches.
    """
    _check_order(state, plan, dataset=dataset)
    hint = (
        "pass the order=, the buckets=, the RandomScale, the Budget, the pack=, and the weights=, balanced=, repeats= "
        "and samples_per_epoch= of the run that saved"
    )
    if "rank_multiple" in state.grouping:
        hint += "; a Budget is per rank, so divide the budget of all ranks by the world size, and name rank_multiple"
    if state.grouping != plan.grouping:
        raise StateError(
            f"state: expected batches by {plan.grouping or 'batch_size alone'!r} as in this loader, got "
            f"{state.grouping or 'batch_size alone'!r} in the state; {hint}"
        )
    _check_global_batch(state.global_batch, plan)
    step, rest = divmod(state.samples, plan.global_batch)
    if rest or step >= plan.steps + past_end:
        raise StateError(
            f"state['samples']: expected a multiple of the global batch {plan.global_batch} below "
            f"{(plan.steps + past_end) * plan.global_batch}, got {state.samples}; pass the saved dict unchanged"
        )
    warnings = []
    if state.core != core:
        warnings.append(
            f"this build decodes with {core}; the state was saved under {state.core}. The samples are the same, but "
            "pixels may differ from those of the run that saved"
        )
    if repeats and state.plan == _ONE_DRAW_OF_REPEATS:
        warnings.append(
            f"this dataset's selection repeats samples, and the state was saved under plan version {state.plan}, where "
            f"all repeats of a sample shared one random draw; under version {PLAN_VERSION} each has its own. The run "
            "goes on at its position with the same samples, and repeats get other crops, flips, captions and rng than "
            "before"
        )
    return Resume(state.epoch, step, ". ".join(warnings) or None)


def resume_samples(state: State, plan: SamplePlan, *, dataset: str) -> tuple[int, int]:
    """Return the (epoch, samples consumed over all ranks) from which `plan` resumes.

    Raises StateError if the saved run had another order, or cut it in whole batches.
    """
    _check_order(state, plan, dataset=dataset)
    if state.global_batch != 1:
        raise StateError(
            f"state: expected one of a sampler of single samples (global batch 1), got global batch "
            f"{state.global_batch}; load it into a sampler of batches, as the one that saved it"
        )
    if state.samples > plan.length:
        raise StateError(
            f"state['samples']: expected at most the {plan.length} samples of an epoch, got {state.samples}; pass the "
            "saved dict unchanged"
        )
    return state.epoch, state.samples


def _check_order(state: State, plan: EpochPlan | SamplePlan, *, dataset: str | None) -> None:
    """Raise StateError if the saved run had its samples in another order."""
    afresh = "resume with the Headrace that saved it, or start the epoch afresh"
    version = PLAN_VERSION if state.plan == _ONE_DRAW_OF_REPEATS else state.plan
    same_data = "open the dataset that the state was saved with"
    may_differ = "if it was changed since on purpose, pass allow_changed=True"
    for name, saved, here, hint in (
        ("plan version", version, PLAN_VERSION, afresh),
        ("random source version", state.rng, _core.RNG_VERSION, afresh),
        ("samples in an epoch", state.length, plan.length, f"{same_data}, with its repeats= or samples_per_epoch="),
        ("dataset", state.dataset, state.dataset if dataset is None else dataset, f"{same_data}; {may_differ}"),
        ("seed", state.seed, plan.seed, f"pass seed={state.seed}"),
        ("shuffle", state.shuffle, plan.shuffle, f"pass shuffle={state.shuffle}"),
        ("remainder", state.remainder, plan.remainder, f"pass remainder={state.remainder!r}"),
    ):
        if saved != here:
            raise StateError(f"state: expected {name} {here!r} as in this loader, got {saved!r} in the state; {hint}")


def _check_global_batch(saved: int, plan: EpochPlan) -> None:
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
