"""What the sources of a mixture have to be. Each check raises UsageError before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from headrace.errors import UsageError
from headrace.feed.nesting import shown
from headrace.loader.loader import Loader
from headrace.plan import Plan

SOURCE = "source"
"""The part of each batch that says which source each sample is from."""


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
    if loader.positioned or loader.epoch or loader.next_step:
        raise UsageError(
            f"mix: expected source {name!r} at its start, got it at epoch {loader.epoch}, step {loader.next_step}; the "
            "mixture has a position of its own: make a loader for it, and load the mixture's state"
        )
    if loader.recipe.on_error == "skip":
        raise UsageError(
            f"mix: expected on_error='replace' or 'raise' in source {name!r}, got 'skip', which would change the shares"
        )
    if SOURCE in loader.recipe.names:
        raise UsageError(
            f"mix: source {name!r} has a field {SOURCE!r}, as the mixture calls the number of each sample's source; "
            "rename the field"
        )


def check_mixed(sources: Mapping[str, Loader]) -> None:
    """What sources that share batches have to be besides."""
    for name, loader in sources.items():
        recipe = loader.recipe
        if not isinstance(recipe.plan, Plan):
            raise UsageError(
                f"batches: expected source {name!r} without buckets, Budget, RandomScale and pack beside 'mixed', as "
                "samples of several sources must have one shape; take 'one-source', or a view of fixed size"
            )
        if recipe.batch_map is not None:
            raise UsageError(
                f"batches: expected source {name!r} without batch_map= beside 'mixed', as no source has a batch of its "
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


def _device(loader: Loader) -> str:
    return "cpu" if loader.placement is None else str(loader.placement.device)


def _conversions(loader: Loader) -> list[str]:
    """What is done to images on the device, where the batches of all sources go one way."""
    if loader.placement is None:
        return []
    return [f"{name}: {conversion}" for name, conversion in sorted(loader.placement.conversions.items())]


def _parts(loader: Loader) -> list[str] | None:
    """What the core writes; None where `map` makes something else of it."""
    recipe = loader.recipe
    if recipe.map is not None:
        return None
    return sorted(f"{part.name} {part.dtype} of {part.channels or 'no'} channels" for part in recipe.parts)


def _paddings(loader: Loader) -> list[str]:
    """How texts are filled up, where each source has some of a batch's."""
    return sorted(
        f"{text.name}: pad={text.field.pad!r} to {text.field.max_length} with {text.pad_id} on the "
        + ("left" if text.encoder.pads_left else "right")
        for text in loader.recipe.texts
    )


def _size(loader: Loader) -> tuple[int, int] | None:
    """(height, width); None where it is the images', or `map` makes something else of them."""
    recipe = loader.recipe
    return recipe.program.output_size if recipe.images and recipe.map is None else None


_ALIKE_FIELDS = "name them alike, with source= where columns differ, and pack= all texts or none"
_ALIKE: list[tuple[str, Callable[[Loader], Any], str]] = [
    ("world size", lambda loader: loader.world_size, "pass the same world_size= to each, or to none"),
    ("rank", lambda loader: loader.rank, "pass the same rank= to each, or to none"),
    ("output", lambda loader: loader.recipe.output, "pass the same output="),
    ("device", _device, "pass the same device="),
    ("fields", lambda loader: sorted(map(shown, loader.recipe.names)), _ALIKE_FIELDS),
    ("conversion on the device", _conversions, "give their images the same dtype= and normalize="),
]
_ALIKE_IN_A_BATCH: list[tuple[str, Callable[[Loader], Any], str]] = [
    ("batch_size", lambda loader: loader.batch_size, "samples of all share a batch; weights= says how many of each"),
    ("fields of pixels", _parts, "give fields of one name the same dtype= and mode="),
    ("padding of texts", _paddings, "give them the same tokenizer, pad= and max_length="),
    ("size of images (height, width)", _size, "give each a view of the same size"),
]
