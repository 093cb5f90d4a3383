"""Position of a run as a few hundred bytes of JSON, and whether a saved one belongs to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol, get_type_hints

from headrace import _core
from headrace.errors import StateError
from headrace.plan.order import MAX_GLOBAL_BATCH, PLAN_VERSION, world_sizes

# -- from plan/state.py: Where a run stands, as a few hundred bytes of JSON.


STATE_VERSION = 2
"""Of the dict. Raise it when a key comes, goes or changes its meaning."""


class Planned(Protocol):
    """What a state says of the plan that it belongs to; every kind of plan has it."""

    @property
    def length(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def shuffle(self) -> bool: ...
    @property
    def seed(self) -> int: ...
    @property
    def remainder(self) -> str: ...
    @property
    def grouping(self) -> str: ...
    @property
    def global_batch(self) -> int: ...
    @property
    def steps(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class State:
    """What the consumer has received, and of what.

    `samples` counts those consumed in `epoch` over all ranks, `global_batch` a step; an epoch's edge is (epoch + 1, 0).
    `grouping` says by what buckets, scales and budget batches are cut. `dataset` is the dataset's fingerprint and
    `core` the codec versions, which decide the bits of pixels. `plan` and `rng` are the versions of the plan and of the
    random source.
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

    def to_dict(self) -> dict[str, int | str | bool]:
        """The state as plain JSON values."""
        return {"version": STATE_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> State:
        """The state that `to_dict` gave. Raises StateError for anything else: nothing is guessed or filled in."""
        if not isinstance(data, Mapping):
            raise StateError(f"state: expected the dict that state_dict() gave, got {type(data).__name__}")
        _check_single(data)
        _check_version(data)
        kinds = get_type_hints(cls)
        values = {name: value for name, value in data.items() if name != "version"}
        _check_keys(values, kinds)
        for name, kind in kinds.items():
            _check_value(name, values[name], kind)
        return cls(**values)  # type: ignore[arg-type]  # each was checked against its field's type


def _check_single(data: Mapping[str, object]) -> None:
    if "counts" in data:  # of a MixedState
        raise StateError(
            "state: expected the dict that a loader's state_dict() gave, got that of a mixture; pass it to the mixture"
        )


def _check_version(data: Mapping[str, object]) -> None:
    version = data.get("version")
    if type(version) is not int or version != STATE_VERSION:
        raise StateError(
            f"state: expected version {STATE_VERSION}, got {version!r}; resume with the Headrace that saved it, or "
            "start the epoch afresh"
        )


def _check_keys(values: Mapping[str, object], kinds: Mapping[str, object]) -> None:
    missing = sorted(kinds.keys() - values.keys())
    unknown = sorted(str(name) for name in values.keys() - kinds.keys())
    if missing or unknown:
        raise StateError(
            f"state: expected the keys that state_dict() gave, got missing {missing} and unknown {unknown}; pass the "
            "saved dict unchanged"
        )


def _check_value(name: str, value: object, kind: type[object]) -> None:
    # type(), not isinstance(): True is an int to Python, and a state that holds it was not made by to_dict.
    negative = type(value) is int and value < 0
    if type(value) is not kind or negative:
        expected = "an int, 0 or more" if kind is int else f"a {kind.__name__}"
        raise StateError(f"state[{name!r}]: expected {expected}, got {value!r}; pass the saved dict unchanged")


def state_after(plan: Planned, *, epoch: int, steps: int, dataset: str, core: str) -> State:
    """The state once the consumer holds `steps` batches of `epoch`, the same on every rank.

    A short batch counts as a whole one.
    """
    at_edge = steps == plan.steps
    return state_at(
        plan,
        epoch=epoch + 1 if at_edge else epoch,
        samples=0 if at_edge else steps * plan.global_batch,
        dataset=dataset,
        core=core,
    )


def state_at(plan: Planned, *, epoch: int, samples: int, dataset: str, core: str) -> State:
    """The state at a position of an epoch, which need not be where the plan cuts."""
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
    )


# -- from plan/resume.py: Whether a saved state belongs to a plan, and where the plan goes on.


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
    check_same_order(state, plan, dataset=dataset)
    _check_grouping(state.grouping, plan.grouping)
    _check_global_batch(state.global_batch, plan)
    told = [_codec_warning(state.core, core), _draws_warning(state.plan) if repeats else None]
    warning = ". ".join(each for each in told if each is not None)
    return Resume(state.epoch, _saved_step(state, plan, past_end), warning or None)


def check_same_order(state: State, plan: Planned, *, dataset: str) -> None:
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


def _saved_step(state: State, plan: Planned, past_end: bool) -> int:
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
