"""Where a run stands, as a few hundred bytes of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol, get_type_hints

from headrace import _core
from headrace.errors import StateError
from headrace.plan.order import PLAN_VERSION

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
