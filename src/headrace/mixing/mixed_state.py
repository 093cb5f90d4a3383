"""What a mixture saves: its own position and each source's, and whether a saved one belongs to a mixture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace.errors import StateError, UsageError
from headrace.plan import MIXTURE_VERSION, EpochPlan, State, resume

MIXED_STATE_VERSION = 1
"""Of the dict. Raise it when a key comes, goes or changes its meaning."""

_UNCHANGED = "pass the saved dict unchanged"
_KINDS: dict[str, type[object]] = {
    "batches": str, "counts": dict, "seed": int, "steps": int, "epoch": int, "step": int, "sources": dict, "plan": int,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MixedState:
    """What the consumer has received of a mixture. `counts` is each source's part of a window, and `sources` its own
    state, once what was received of it has been."""

    batches: str
    counts: dict[str, int]
    seed: int
    steps: int
    epoch: int
    step: int
    sources: dict[str, dict[str, Any]]
    plan: int = MIXTURE_VERSION

    def to_dict(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {"version": MIXED_STATE_VERSION, "kind": "mixture", **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MixedState:
        """The state that `to_dict` gave. Raises StateError for anything else: nothing is guessed or filled in."""
        if not isinstance(data, Mapping) or data.get("kind") != "mixture":
            got = "that of a single loader" if isinstance(data, Mapping) and "dataset" in data else repr(data)[:80]
            raise StateError(f"state: expected the dict that a mixture's state_dict() gave, got {got}; {_UNCHANGED}")
        if data.get("version") != MIXED_STATE_VERSION:
            raise StateError(
                f"state: expected version {MIXED_STATE_VERSION} of a mixture, got {data.get('version')!r}; resume with "
                "the Headrace that saved it, or start the epoch afresh"
            )
        values = {name: value for name, value in data.items() if name not in ("version", "kind")}
        if values.keys() != _KINDS.keys():
            missing = sorted(_KINDS.keys() - values.keys())
            unknown = sorted(map(str, values.keys() - _KINDS.keys()))
            raise StateError(
                f"state: expected the keys of a mixture, got missing {missing} and unknown {unknown}; {_UNCHANGED}"
            )
        for name, kind in _KINDS.items():
            value: Any = values[name]
            if type(value) is not kind or (type(value) is int and value < 0):
                expected = "an int, 0 or more" if kind is int else f"a {kind.__name__}"
                raise StateError(f"state[{name!r}]: expected {expected}, got {value!r}; {_UNCHANGED}")
        return cls(**values)


def find(
    saved: MixedState,
    state_at: Callable[[int, int], MixedState],
    plans: Mapping[str, EpochPlan],
    repeating: Collection[str],
) -> tuple[int, int, list[str]]:
    """(epoch, step) at which the mixture goes on that has `state_at` them, and warnings for the user. `repeating`: the
    sources whose datasets hold a sample several times.

    Raises StateError where the run that saved would have had other batches, saying what differs in which source.
    """
    start = state_at(0, 0)
    _check(saved, start)
    if saved.step >= saved.steps:
        raise StateError(f"state['step']: expected less than {saved.steps}, got {saved.step}; {_UNCHANGED}")
    try:
        here = state_at(saved.epoch, saved.step)
    except UsageError as error:
        raise StateError(f"state['epoch']: {error}; {_UNCHANGED}") from error
    told = []
    for name, plan in plans.items():
        warning = _check_source(name, saved.sources[name], here.sources[name], plan, name in repeating)
        if warning is not None:
            told.append(warning)
    return saved.epoch, saved.step, told


def _check(saved: MixedState, here: MixedState) -> None:
    afresh = "resume with the Headrace that saved it, or start the epoch afresh"
    names = f"pass the sources {', '.join(map(repr, saved.counts))}, in this order"
    _expect("mixture's plan version", saved.plan, here.plan, afresh)
    _expect("sources", list(saved.counts), list(here.counts), names)
    _expect("states of sources", sorted(saved.sources), sorted(here.sources), _UNCHANGED)
    _expect("batches", saved.batches, here.batches, f"pass batches={saved.batches!r}")
    _expect("weights", saved.counts, here.counts, f"pass weights={saved.counts}")
    _expect("seed", saved.seed, here.seed, f"pass seed={saved.seed} to mix()")
    _expect("steps of an epoch", saved.steps, here.steps, f"pass epoch={saved.steps}")


def _expect(what: str, saved: object, here: object, hint: str) -> None:
    if saved != here:
        raise StateError(f"state: expected {what} {here!r} as in this mixture, got {saved!r} in the state; {hint}")


def _check_source(
    name: str, saved: Mapping[str, Any], here: Mapping[str, Any], plan: EpochPlan, repeats: bool
) -> str | None:
    """The warning, if there is one."""
    try:
        there, mine = State.from_dict(saved), State.from_dict(here)
        # Its position may be one at which the source's own plan does not cut: that follows from the mixture's.
        at_start = replace(there, epoch=0, samples=0)
        found = resume(at_start, plan, dataset=mine.dataset, core=mine.core, repeats=repeats)
    except StateError as error:
        raise StateError(f"source {name!r} of the mixture: {error}") from error
    if (there.epoch, there.samples) != (mine.epoch, mine.samples):
        raise StateError(
            f"source {name!r} of the mixture: expected epoch {mine.epoch} and {mine.samples} samples, as follows from "
            f"the mixture's epoch and step, got {there.epoch} and {there.samples}; {_UNCHANGED}"
        )
    return None if found.warning is None else f"source {name!r} of the mixture: {found.warning}"
