"""`mix`, and `MixedLoader`: several loaders as one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.errors import UsageError, warn_caller
from headrace.foreign_arguments import known_arguments
from headrace.loader.autotuning.tuner import tuner_of
from headrace.loader.batch_memory import PooledMemory, memory_of
from headrace.loader.decoding.pixels import all_parts
from headrace.loader.loader import Loader
from headrace.loader.mixtures.mixed_pass import JoinedPass, OneSourcePass
from headrace.loader.mixtures.sources import MixedState, check_mixed, check_sources, find_position
from headrace.loader.position import DevicePass, LoaderPass, LoaderPosition
from headrace.loader.recipe import Recipe
from headrace.loader.stats import Stats
from headrace.plan import Mixture, SourceBatches, SourceSamples, State, UniformPlan, Until, check_int, counts_of

if TYPE_CHECKING:
    from headrace.loader.runner import Runner


Batches: TypeAlias = Literal["one-source", "mixed"]


class MixedLoader(LoaderPosition):
    """Loader that `mix` makes from several. It has a Loader's epochs, state and statistics.

    Each pass takes one epoch of `len(mixed)` steps, and the next pass the next epoch, also after a `break`, unless
    `set_epoch` sets it. A restored position is continued once.
    """

    def __init__(self, sources: Mapping[str, Loader], mixture: Mixture, batches: Batches, steps: int) -> None:
        super().__init__()
        self._sources = dict(sources)
        self._mixture = mixture
        self._batches: Batches = batches
        self._steps = steps
        self._feeds = {name: loader._feed for name, loader in sources.items()}
        self._first = next(iter(self._feeds.values()))
        self._memory = memory_of(self._first.placement, prefetch=1, images=len(all_parts(self._first.recipe.images)))
        self._mixed: OneSourcePass | JoinedPass | None = None  # the latest pass on the host

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources: `batch["source"]` is a position here."""
        return tuple(self._sources)

    @property
    def shares(self) -> dict[str, Fraction]:
        """Exact share of each source in all batches ("one-source") or samples ("mixed")."""
        return dict(zip(self._sources, self._mixture.shares, strict=True))

    @property
    def window(self) -> int:
        """Number of batches or samples in which the shares are exact, counted from the first of all epochs."""
        return self._mixture.window

    @property
    def batch_size(self) -> int:
        """Samples per rank; about the mean if the sources' batches differ in size."""
        sizes = [loader.batch_size for loader in self._sources.values()]
        return round(sum(share * size for share, size in zip(self._mixture.shares, sizes, strict=True)))

    @property
    def rank(self) -> int:
        return self._first.recipe.plan.rank

    @property
    def world_size(self) -> int:
        return self._first.recipe.plan.world_size

    @property
    def samples(self) -> int:
        """Samples of an epoch over all ranks; approximate if batches differ in size."""
        if self._batches == "mixed":
            return self._steps * self._first.recipe.plan.global_batch
        means = [Fraction(loader.samples, len(loader)) for loader in self._sources.values()]
        return round(self._steps * sum(share * mean for share, mean in zip(self._mixture.shares, means, strict=True)))

    def __len__(self) -> int:
        """Return the steps of an epoch, the same on every rank and in every epoch."""
        return self._steps

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {float(share):.3g}" for name, share in self.shares.items())
        what = "of one source each" if self._batches == "one-source" else "of samples of all"
        return f"MixedLoader: {len(self):,} batches of {self.batch_size}, {what}: {shares}"

    def source_stats(self) -> dict[str, Stats] | None:
        """Return each source's statistics in the latest pass."""
        return None if self._mixed is None or self._mixed.foreign else self._mixed.source_stats()

    def _state_at(self, epoch: int, step: int) -> dict[str, Any]:
        """Return the state once the consumer has received the first `step` batches of `epoch`."""
        return self._mixed_state(*divmod(epoch * self._steps + step, self._steps)).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Continue where `state` was saved, also at another world size of the same global batches.

        Raises StateError for a state of other sources, weights or epochs, naming the difference and its source.
        `allow_changed` has the same meaning as for a Loader, which raises ChangedError without it.
        """
        found = MixedState.from_dict(state)
        plans = {name: feed.recipe.plan for name, feed in self._feeds.items()}
        repeating = {name for name, each in self._sources.items() if each.dataset.occurrences is not None}
        epoch, step, told = find_position(found, self._mixed_state, plans, repeating, allow_changed)
        if not allow_changed:
            for name, feed in self._feeds.items():
                feed.content.check(State.from_dict(found.sources[name]).content)
        for warning in told:
            warn_caller(warning)
        self._move(epoch, step)

    def _mixed_state(self, epoch: int, step: int) -> MixedState:
        sources = {}
        for (name, feed), number in zip(self._feeds.items(), self._taken(epoch, step), strict=True):
            plan = feed.recipe.plan
            if self._batches == "one-source":
                sources[name] = feed.state_at(*divmod(number, plan.steps))
            else:
                source_epoch, samples = divmod(number, plan.length)
                sources[name] = feed.state_at(source_epoch, 0) | {"samples": samples}
        return MixedState(
            batches=self._batches,
            counts=dict(zip(self._sources, self._mixture.counts, strict=True)),
            seed=self._mixture.seed,
            steps=self._steps,
            epoch=epoch,
            step=step,
            sources=sources,
        )

    def _taken(self, epoch: int, step: int) -> list[int]:
        """Return the number of batches or samples of each source before this step."""
        a_step = 1 if self._batches == "one-source" else self._first.recipe.plan.global_batch
        return self._mixture.taken((epoch * self._steps + step) * a_step)

    def _check_place(self) -> None:
        for feed in self._feeds.values():
            feed.rank.check("Loader")

    def _begin_pass(self, epoch: int, step: int) -> LoaderPass:
        """Start the pass over `epoch` from `step` on."""
        self._taken(epoch + 1, 0)  # an epoch too large to count raises here
        lane = self._first.lane()  # first: its errors leave no thread behind
        runners: dict[str, Runner] = {}
        with ExitStack() as undo:
            for number, (name, loader) in enumerate(self._sources.items()):
                recipe, ahead, first = self._recipe_of(number, loader, epoch, step)
                fixed = tuner_of(loader.threads, ahead)
                # Fixed, not tuned: the consumer waits for all sources at once, so no source can judge its own setting.
                runners[name] = self._feeds[name].start(epoch, first, recipe=recipe, tuner=fixed)
                undo.callback(runners[name].close)
            undo.pop_all()
        recipes = [feed.recipe for feed in self._feeds.values()]
        place = {"epoch": epoch, "step": step, "steps": self._steps}
        if self._batches == "one-source":
            self._mixed = OneSourcePass(runners, self._mixture, recipes, **place)
        else:
            self._mixed = JoinedPass(runners, self._mixture, recipes, self._memory, **place)
        self._pass = self._mixed if lane is None else DevicePass(self._mixed, lane)
        return self._pass

    def _recipe_of(self, number: int, loader: Loader, epoch: int, step: int) -> tuple[Recipe, int, int]:
        """Return the source's recipe for this epoch, its prefetch, and its first step."""
        end = self._taken(epoch + 1, 0)[number]
        # The mixture's epoch may hold several epochs of the source, or a part of one.
        count = Fraction(end - self._taken(epoch, 0)[number])
        if self._batches == "one-source":
            count *= Fraction(loader.samples, len(loader))
        different = min(math.ceil(count / loader.world_size), loader._feed.recipe.plan.length)
        recipe = replace(loader._feed.recipe, pass_samples=different)
        if self._batches == "mixed":
            assert isinstance(recipe.plan, UniformPlan)
            return (
                replace(recipe, plan=SourceSamples(recipe.plan, self._steps, self._mixture, number)),
                loader.prefetch,
                step,
            )
        # As far ahead in steps of the mixture as the source's loader would be alone.
        ahead = min(loader.prefetch, 1 + int(loader.prefetch * self._mixture.shares[number]))
        return replace(recipe, plan=SourceBatches(recipe.plan, end)), ahead, self._taken(epoch, step)[number]

    def _warn_of_held(self, begun: LoaderPass) -> None:
        """Warn a consumer that holds many batches."""
        if isinstance(begun, OneSourcePass):
            for feed, runner in zip(self._feeds.values(), begun.runners.values(), strict=True):
                feed.warn_of_held(runner)
        elif isinstance(self._memory, PooledMemory):
            self._memory.warn_of_held(begun.batch_bytes, begun.held_batches)


MAX_STEPS = 1 << 40


@known_arguments("mix")
def mix(
    sources: Mapping[str, Loader],
    *,
    weights: Mapping[str, float] | None = None,
    batches: Batches = "one-source",
    epoch: Until | int = "largest",
    seed: int = 0,
) -> MixedLoader:
    """Combine several loaders, each with its own dataset, fields, views and order, in exact proportions.

    `sources`  names to loaders that differ in what they load, and agree on fields' names, ranks, output and device
    `weights`  the share of each source, as numbers above 0 in any unit; default: by size, so that all end together
    `batches`  "one-source": each batch is one source's own, and weights are shares of batches. "mixed": each batch has
               samples of all, weights are shares of samples, and all sources have one batch_size and one image shape
    `epoch`    number of steps of an epoch: the fewest in which all sources ("largest") or one of them ("smallest") are
               seen completely, or an int
    `seed`     seed of the order in which sources take turns; each source draws its samples with its own seed

    A source continues from one epoch into the next. After its last sample, it begins again in a new order. Each batch
    has int64 [N] `source` alongside its fields: the position of each sample's source in `sources`. Raises UsageError
    for sources that do not go together, before any data is read.
    """
    check_sources(sources)
    if batches not in ("one-source", "mixed"):
        raise UsageError(f"batches: expected 'one-source' or 'mixed', got {batches!r}")
    if batches == "mixed":
        check_mixed(sources)
    check_int("seed", seed, 0, (1 << 64) - 1, "take it modulo 2**64")
    plans = [loader._feed.recipe.plan for loader in sources.values()]
    lengths = [plan.steps if batches == "one-source" else plan.length for plan in plans]
    mixture = Mixture(counts_of(_weights(weights, sources, lengths)), seed)
    a_step = 1 if batches == "one-source" else plans[0].global_batch
    return MixedLoader(sources, mixture, batches, _steps(epoch, mixture, lengths, a_step))


def _weights(weights: object, sources: Mapping[str, Loader], lengths: list[int]) -> dict[str, float]:
    """Return the weights in the sources' order; by default their `lengths`, in batches or samples of an epoch."""
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


def _steps(epoch: Until | int, mixture: Mixture, lengths: list[int], a_step: int) -> int:
    """Return the steps of an epoch, of `a_step` batches or samples each."""
    if not isinstance(epoch, str):
        check_int("epoch", epoch, 1, MAX_STEPS, "it is a number of steps; or 'largest' or 'smallest'")
        return epoch
    if epoch not in ("largest", "smallest"):
        raise UsageError(f"epoch: expected 'largest', 'smallest' or a number of steps, got {epoch!r}")
    steps = mixture.steps_of_epoch(lengths, until=epoch, positions_a_step=a_step)
    if steps > MAX_STEPS:
        raise UsageError(
            f"epoch: expected at most {MAX_STEPS} steps until {epoch!r}, got {steps} with these weights; pass a "
            "number of steps"
        )
    return steps
