"""`StepMaker`: single steps of a loader's plan, in any order; with the engine and the statistics of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from headrace import _core
from headrace.data.storage import open_file
from headrace.fetch import FetchAhead
from headrace.loader.assembly import Assembly
from headrace.loader.bad_samples import BadSamples
from headrace.loader.batch_decoder import BatchDecoder
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.cache import EpochCache
from headrace.loader.map_stage import LastStages, MapStage, PythonThreads, ThreadedMap
from headrace.loader.recipe import Batch, Recipe
from headrace.loader.stats import STAGES, StageStats
from headrace.loader.user_functions import DecodedBatch


def engine_of(recipe: Recipe, threads: int) -> _core.Engine:
    """Return an engine of `threads` threads for a recipe."""
    return _core.Engine(
        threads,
        level=recipe.level,
        limits=recipe.limits,
        retry_waits_s=list(open_file.RETRY_PAUSES_S),
        most_threads=recipe.threads,
    )


def stages_of(
    recipe: Recipe,
    core: Mapping[str, tuple[int, int, int]],
    decoder: BatchDecoder,
    map_stage: MapStage,
    last: LastStages,
) -> dict[str, StageStats]:
    """Return the statistics of the stages on the host, from the core's counters and the Python stages."""
    stages = {name: StageStats(core[name][0] / 1e9, core[name][1], core[name][2]) for name in STAGES}
    if recipe.texts:
        stages["text"] = decoder.texts.stats()
    if recipe.map is not None:
        stages["map"] = map_stage.meter.stats()
    if last.mixer is not None:
        stages["mixing"] = last.mixer.meter.stats()
    return stages


def _fetch_at_need(recipe: Recipe, _: EpochCache | None = None) -> FetchAhead | None:
    """Return a prefetcher from the plan's end on, which plans nothing: bytes are fetched when a step begins."""
    columns, plan = recipe.read_columns, recipe.plan
    return FetchAhead.of(recipe.dataset, columns, plan, epoch=0, first_step=plan.steps)


class StepMaker:
    """Producer of whole batches from one step each, without a cache and without prefetch. One thread uses it."""

    def __init__(self, recipe: Recipe, memory: BatchMemory, bad: BadSamples) -> None:
        self._recipe = recipe
        self._made: tuple[DecodedBatch, Batch] | None = None
        with ExitStack() as undo:
            self._engine = engine_of(recipe, recipe.threads)
            undo.callback(self._engine.close)
            self._ahead = _fetch_at_need(recipe)
            if self._ahead is not None:
                undo.callback(self._ahead.close)
            self._python = PythonThreads(recipe.threads)
            self._assembly = Assembly(recipe, self._engine, memory, None, self._ahead)
            self._decoder = BatchDecoder(recipe, self._assembly, bad, self._python, None, _fetch_at_need)
            undo.callback(self._decoder.close)
            self._last = LastStages(recipe, memory)
            self._map = MapStage(self._take)
            if recipe.map is not None:
                self._map = ThreadedMap(recipe.map, recipe.output, self._python, self._take)
            undo.pop_all()

    def _take(self, decoded: DecodedBatch, batch: Batch) -> None:
        self._made = decoded, batch

    def make(self, epoch: int, step: int) -> tuple[DecodedBatch, Batch]:
        """Return a step's decoded rows and its batch. Raises what the error policy says, or Cancelled."""
        self._map.put(self._decoder.finish(self._decoder.start(self._recipe.plan.batch(epoch, step))))
        made, self._made = self._made, None
        assert made is not None, "the stage delivers in the same call"
        decoded, batch = made
        return decoded, self._last.run(decoded, batch)

    def stages(self) -> dict[str, StageStats]:
        """Return the statistics of the stages so far."""
        return stages_of(self._recipe, self._engine.counters(), self._decoder, self._map, self._last)

    @property
    def retries(self) -> int:
        """Number of repeated reads."""
        return int(self._engine.counters()["retry"][1])

    def cancel(self) -> None:
        """Make the step in progress, and every later one, raise Cancelled or Closed. Callable from any thread."""
        self._engine.cancel()
        self._python.cancel()
        if self._ahead is not None:
            self._ahead.close()
        self._decoder.cancel()

    def close(self) -> None:
        """End all threads. No step may be in progress."""
        self.cancel()
        self._python.join()
        self._engine.close()
        self._assembly.close()
        self._decoder.close()
