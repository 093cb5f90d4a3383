"""`mix`: what a user says of a mixture, checked and made into a loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from headrace.errors import UsageError
from headrace.loader.loader import Loader
from headrace.loader.mixtures.mixed_loader import Batches, MixedLoader
from headrace.loader.mixtures.sources import check_mixed, check_sources
from headrace.plan import Mixture, Until, counts_of
from headrace.plan.order import check_int

MAX_STEPS = 1 << 40


def mix(
    sources: Mapping[str, Loader],
    *,
    weights: Mapping[str, float] | None = None,
    batches: Batches = "one-source",
    epoch: Literal["largest", "smallest"] | int = "largest",
    seed: int = 0,
) -> MixedLoader:
    """One loader out of several, each with its own dataset, fields, views and order, in exact proportions.

    `sources`  names to loaders that differ in what they load, and agree on fields' names, ranks, output and device
    `weights`  the share of each source, as numbers above 0 in any unit; default: by size, so that all end together
    `batches`  "one-source": each batch is one of a source's own, and weights are shares of batches. "mixed": each
               batch has samples of all, weights are shares of samples, and all sources have one batch_size and one
               shape of image
    `epoch`    how many steps an epoch has: the fewest in which all sources ("largest") or one of them ("smallest")
               are seen whole, or an int
    `seed`     draws the order in which sources take turns; each source draws its samples by its own

    A source goes on where it was from one epoch into the next, and begins again, in a new order, when it has been seen
    whole. Each batch has int64 [N] `source` beside its fields: the position of each sample's source in `sources`.
    Raises UsageError for sources that do not go together, before anything is read.
    """
    check_sources(sources)
    if batches not in ("one-source", "mixed"):
        raise UsageError(f"batches: expected 'one-source' or 'mixed', got {batches!r}")
    if batches == "mixed":
        check_mixed(sources)
    check_int("seed", seed, 0, (1 << 64) - 1, "take it modulo 2**64")
    lengths = _lengths(sources, batches)
    mixture = Mixture(counts_of(_weights(weights, sources, lengths)), seed)
    return MixedLoader(sources, mixture, batches, _steps(epoch, mixture, sources, lengths, batches))


def _lengths(sources: Mapping[str, Loader], batches: Batches) -> list[int]:
    """What is taken of each source until it has been seen whole: batches or samples."""
    plans = [loader.recipe.plan for loader in sources.values()]
    return [plan.steps if batches == "one-source" else plan.length for plan in plans]


def _weights(weights: object, sources: Mapping[str, Loader], lengths: list[int]) -> dict[str, float]:
    """By source, in their order."""
    if weights is None:
        return dict(zip(sources, lengths, strict=True))
    if not isinstance(weights, Mapping):
        raise UsageError(f"weights: expected a dict of the sources' names to numbers, got {weights!r}")
    missing = [name for name in sources if name not in weights]
    unknown = [name for name in weights if name not in sources]
    if missing or unknown:
        raise UsageError(
            f"weights: expected one for each of the sources {', '.join(map(repr, sources))}, got "
            + " and ".join(
                f"{what} {', '.join(map(repr, names))}"
                for what, names in (("none for", missing), ("some for unknown", unknown))
                if names
            )
        )
    return {name: weights[name] for name in sources}


def _steps(epoch: object, mixture: Mixture, sources: Mapping[str, Loader], lengths: list[int], batches: Batches) -> int:
    if isinstance(epoch, str):
        if epoch not in ("largest", "smallest"):
            raise UsageError(f"epoch: expected 'largest', 'smallest' or a number of steps, got {epoch!r}")
        until: Until = "largest" if epoch == "largest" else "smallest"
        plan = next(iter(sources.values())).recipe.plan
        a_step = 1 if batches == "one-source" else plan.global_batch
        steps = mixture.steps_of_epoch(lengths, until=until, positions_a_step=a_step)
        if steps > MAX_STEPS:
            raise UsageError(
                f"epoch: expected at most {MAX_STEPS} steps until {epoch!r}, got {steps} with these weights; pass a "
                "number of steps"
            )
        return steps
    check_int("epoch", epoch, 1, MAX_STEPS, "it is a number of steps; or 'largest' or 'smallest'")
    assert isinstance(epoch, int)
    return epoch
