"""Sources of a mixture: their common requirements, and the state of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from headrace.errors import StateError, UsageError
from headrace.loader.batch_values import shown
from headrace.loader.decoding.pixels import PixelPart, all_parts
from headrace.loader.loader import Loader
from headrace.loader.resolving import names_of
from headrace.plan import MIXTURE_VERSION, EpochPlan, State, UniformPlan, check_state, resume

SOURCE = "source"
"""Name of the batch's part that holds the number of each sample's source."""


def check_sources(sources: Mapping[str, Loader]) -> None:
    if not isinstance(sources, Mapping) or not sources:
        raise UsageError(f"mix: expected a dict of names to loaders, such as {{'a': hr.Loader(…)}}, got {sources!r}")
    for name, loader in sources.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"mix: expected names that are texts, got {name!r}")
        if not isinstance(loader, Loader):
            raise UsageError(f"mix: expected source {name!r} to be an hr.Loader, got {type(loader).__name__}")
        _check_alone(name, loader)
    if len({id(loader) for loader in sources.values()}) < len(sources):
        raise UsageError("mix: expected a loader for each source, got one under two names; make one for each")
    for what, of, hint in _ALIKE:
        _expect_alike(sources, what, of, hint)


def _check_alone(name: str, loader: Loader) -> None:
    if loader._positioned or loader.epoch or loader.next_step:
        raise UsageError(
            f"mix: expected source {name!r} at its start, got it at epoch {loader.epoch}, step {loader.next_step}; the "
            "mixture has a position of its own: make a loader for it, and load the mixture's state"
        )
    if loader._feed.cluster is not None:
        raise UsageError(f"mix: expected source {name!r} without workers=, got Ray actors; leave workers out")
    if SOURCE in _names(loader):
        raise UsageError(
            f"mix: source {name!r} has a field {SOURCE!r}, as the mixture calls the number of each sample's source; "
            "rename the field"
        )


def check_mixed(sources: Mapping[str, Loader]) -> None:
    """Check the additional requirements of sources that share batches."""
    for name, loader in sources.items():
        recipe = loader._feed.recipe
        if not isinstance(recipe.plan, UniformPlan):
            raise UsageError(
                f"batches: expected source {name!r} without buckets, Budget, RandomScale and pack with 'mixed', as "
                "samples of several sources must have one shape; take 'one-source', or a view of fixed size"
            )
        if recipe.colours is not None:
            raise UsageError(
                f"batches: expected augment_on='cpu' in source {name!r} with 'mixed', as the device is told of whole "
                "batches of one source; leave it out, or take 'one-source'"
            )
        if recipe.decode_on is not None:
            raise UsageError(
                f"batches: expected decode='core' in source {name!r} with 'mixed', as the host joins the samples; "
                "leave decode out, or take 'one-source'"
            )
        if recipe.mixing is not None:
            raise UsageError(
                f"batches: expected source {name!r} without batch= with 'mixed', as its samples have no neighbours of "
                "their own in a batch; mix them in the training step, or take 'one-source'"
            )
        if recipe.plan.draws is not None:
            raise UsageError(
                f"batches: expected source {name!r} without weights=, balanced=, repeats= and samples_per_epoch= with "
                "'mixed', which takes every sample in turn; take 'one-source', or mix parts of the dataset by weight"
            )
        if recipe.batch_map is not None:
            raise UsageError(
                f"batches: expected source {name!r} without batch_map= with 'mixed', as no source has a batch of its "
                "own; call it on the mixture's batches, or take 'one-source'"
            )
    for what, of, hint in _ALIKE_IN_A_BATCH:
        _expect_alike(sources, what, of, hint)


def _expect_alike(sources: Mapping[str, Loader], what: str, of: Callable[[Loader], Any], hint: str) -> None:
    found = [(name, of(loader)) for name, loader in sources.items()]
    for (name, value), (other, differs) in pairwise(found):
        if value is not None and differs is not None and value != differs:
            raise UsageError(
                f"mix: expected the same {what} of all sources, got {_shown(value)} of {name!r} and {_shown(differs)} "
                f"of {other!r}; {hint}"
            )


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _names(loader: Loader) -> list[str]:
    return names_of(loader._feed.recipe.fields, loader._feed.recipe.packed)


def _device(loader: Loader) -> str:
    return "cpu" if loader._feed.placement is None else str(loader._feed.placement.device)


def _conversions(loader: Loader) -> list[str]:
    """Return the conversions of images on the device, which are the same for all sources."""
    if loader._feed.placement is None:
        return []
    return [f"{name}: {conversion}" for name, conversion in sorted(loader._feed.placement.conversions.items())]


def _parts(loader: Loader) -> list[str] | None:
    """Return the core's arrays; None if `map` changes them."""
    recipe = loader._feed.recipe
    if recipe.map is not None:
        return None
    return sorted(_part(part) for part in all_parts(recipe.images))


def _part(part: PixelPart) -> str:
    copies = "" if part.copies is None else f"{part.copies} copies of "
    size = "" if part.own_size is None else " of {}x{}".format(*part.own_size)
    size += "" if part.scale == 1 else f" at scale {part.scale}"
    return f"{part.name} {part.dtype} of {copies}{part.channels or 'no'} channels{size}"


def _paddings(loader: Loader) -> list[str]:
    """Return the padding of texts, since each source pads its part of a batch."""
    return sorted(
        f"{text.name}: pad={text.field.pad!r} to {text.field.max_length} with {text.pad_id} on the "
        + ("left" if text.encoder.pads_left else "right")
        for text in loader._feed.recipe.texts
    )


def _size(loader: Loader) -> tuple[int, int] | None:
    """Return (height, width); None if the images set it, or `map` changes it."""
    recipe = loader._feed.recipe
    takes_view = any(part.own_size is None for part in all_parts(recipe.images))
    return recipe.program.output_size if takes_view and recipe.map is None else None


_ALIKE_FIELDS = "name them alike, with source= where columns differ, and pack= all texts or none"
_ALIKE: list[tuple[str, Callable[[Loader], Any], str]] = [
    ("world size", lambda loader: loader.world_size, "pass the same world_size= to each, or to none"),
    ("rank", lambda loader: loader.rank, "pass the same rank= to each, or to none"),
    ("output", lambda loader: loader._feed.recipe.output, "pass the same output="),
    ("device", _device, "pass the same device="),
    ("fields", lambda loader: sorted(map(shown, _names(loader))), _ALIKE_FIELDS),
    ("conversion on the device", _conversions, "give their images the same dtype= and normalize="),
]
_ALIKE_IN_A_BATCH: list[tuple[str, Callable[[Loader], Any], str]] = [
    ("batch_size", lambda loader: loader.batch_size, "samples of all share a batch; weights= says how many of each"),
    ("fields of pixels", _parts, "give fields of one name the same dtype=, mode=, view=, copies= and scale="),
    ("padding of texts", _paddings, "give them the same tokenizer, pad= and max_length="),
    ("size of images (height, width)", _size, "give each a view of the same size"),
]


MIXED_STATE_VERSION = 1
"""Version of the dict. Raise it when a key is added, removed or changes its meaning."""

_UNCHANGED = "pass the saved dict unchanged"
_KINDS: dict[str, type[object]] = {
    "batches": str, "counts": dict, "seed": int, "steps": int, "epoch": int, "step": int, "sources": dict, "plan": int,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MixedState:
    """Position of a mixture's consumer. `counts` is each source's part of a window, `sources` each source's state."""

    batches: str
    counts: dict[str, int]
    seed: int
    steps: int
    epoch: int
    step: int
    sources: dict[str, dict[str, Any]]
    plan: int = MIXTURE_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"version": MIXED_STATE_VERSION, "kind": "mixture", **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MixedState:
        """Read a state from `to_dict`. Raises StateError for anything else: nothing is guessed or filled in."""
        if not isinstance(data, Mapping) or data.get("kind") != "mixture":
            got = "that of a single loader" if isinstance(data, Mapping) and "dataset" in data else repr(data)[:80]
            raise StateError(f"state: expected the dict that a mixture's state_dict() gave, got {got}; {_UNCHANGED}")
        if data.get("version") != MIXED_STATE_VERSION:
            raise StateError(
                f"state: expected version {MIXED_STATE_VERSION} of a mixture, got {data.get('version')!r}; resume with "
                "the Headrace that saved it, or start the epoch afresh"
            )
        values = {name: value for name, value in data.items() if name not in ("version", "kind")}
        check_state(values, _KINDS)
        return cls(**values)


def find_position(
    saved: MixedState,
    state_at: Callable[[int, int], MixedState],
    plans: Mapping[str, EpochPlan],
    repeating: Collection[str],
    allow_changed: bool,
) -> tuple[int, int, list[str]]:
    """Return the (epoch, step) where the mixture with `state_at` continues, and warnings for the user.

    `repeating` names the sources with datasets that hold a sample several times. Raises StateError if the saved run
    would have had other batches, naming the difference and its source.
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
        warning = _check_source(
            name, saved.sources[name], here.sources[name], plan, repeats=name in repeating, allow_changed=allow_changed
        )
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
    name: str,
    saved: Mapping[str, Any],
    here: Mapping[str, Any],
    plan: EpochPlan,
    *,
    repeats: bool,
    allow_changed: bool,
) -> str | None:
    """Check a source's state. Return the warning, if there is one."""
    try:
        there, mine = State.from_dict(saved), State.from_dict(here)
        # Its position follows from the mixture's, and may be within a batch of the source's own plan.
        at_start = replace(there, epoch=0, samples=0)
        dataset = None if allow_changed else mine.dataset
        found = resume(at_start, plan, dataset=dataset, core=mine.core, repeats=repeats)
    except StateError as error:
        raise StateError(f"source {name!r} of the mixture: {error}") from error
    if (there.epoch, there.samples) != (mine.epoch, mine.samples):
        raise StateError(
            f"source {name!r} of the mixture: expected epoch {mine.epoch} and {mine.samples} samples, as follows from "
            f"the mixture's epoch and step, got {there.epoch} and {there.samples}; {_UNCHANGED}"
        )
    return None if found.warning is None else f"source {name!r} of the mixture: {found.warning}"
