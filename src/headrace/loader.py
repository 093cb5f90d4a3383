"""`Loader`: a description of what to load, and where its consumer is."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import _core
from headrace._core import Limits
from headrace.buckets import Buckets, Budget
from headrace.data import Dataset, Where
from headrace.data import open as open_dataset
from headrace.errors import UsageError
from headrace.feed import (
    BatchMap,
    OnError,
    Output,
    Quarantine,
    Recipe,
    Runner,
    SampleMap,
    Stats,
    default_threads,
)
from headrace.feed.cache import open_cache
from headrace.feed.memory import PinnedMemory, PooledMemory
from headrace.feed.recipe import Columns, obvious_fields, resolve_columns
from headrace.fields import Field, Image
from headrace.grouping import Images, Order, plan_of
from headrace.launch import rank_and_world_size
from headrace.loader_arguments import (
    check_fields,
    check_last_batch,
    check_level,
    check_map_workers,
    check_skip,
    check_values,
    need_torch,
    place_fields,
)
from headrace.loader_iterator import LoaderIterator
from headrace.passes import DevicePass, Pass
from headrace.plan import Remainder, State, state_after
from headrace.plan.resume import resume
from headrace.view import View, compile_view

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    import torch

    from headrace.compat.frameworks.dataloader import LoaderDataLoader


class Loader:
    """Batches of a dataset, decoded and cut by native threads, the same on every machine and at every thread count.

    `data` is a Dataset or anything that `headrace.open` takes. `fields` maps names of the batch to Image, Mask,
    Depth, Normals, Boxes, Keypoints, Label or Raw; without it the obvious columns are taken. Each batch is a dict:
    images [N, C, H, W], masks [N, H, W], labels [N], boxes a list of N.

    `view`       one geometry for every field of pixels of a sample, or a list of views that compose
    `view_from`  the field of pixels whose size the view is drawn from (default: the first)
    `batch_size` samples per rank; the global batch is `batch_size * world_size`. Or a Budget: as many as it bears
    `buckets`    which samples may share a batch. With these, a Budget or a RandomScale, all images of a global batch
                 have one shape, the same on every rank; without, batches of unequal images are refused
    `shuffle`, `seed`  the order of each epoch, and every random view, follow from these two and the epoch
    `remainder`  the last samples: "short" batch, "drop", or "wrap" (fill up from the epoch's start)
    `threads`    default: the cores available, shared by the ranks of the node
    `prefetch`   batches under way or ready beyond the one that the consumer has
    `on_error`   a sample that cannot be decoded is replaced by another, named in `quarantine` and counted in
                 `stats()`: "replace". "raise" raises instead. "skip", for one rank only, leaves it out: its batch is
                 shorter, a batch that loses all of its samples does not come, so that a pass may have fewer batches
                 than `len(loader)`, and the state counts both as consumed. More than `max_bad` of the samples that
                 this rank takes in a pass end the run in any case
    `map`        `map(sample, rng)` for each sample, in threads; `batch_map(batch, rng)` for each batch
    `map_workers`  that many processes for `map` instead of threads, for Python that holds the GIL. Results are the
                 same for any number; processes start with each pass, and know what `map` knows then
    `multiprocessing_context`  how they start: "fork", "forkserver", "spawn" or a context; default: the program's
    `rank`, `world_size`  default: RANK and WORLD_SIZE, as torchrun sets them, else 0 and 1
    `output`     "torch" tensors or "numpy" arrays
    `device`     where batches are handed out, such as "cuda": they are made in pinned memory and copied on a side
                 stream, images of floats as bytes that become floats there (the same bits), unless `map` or
                 `batch_map` has to see them
    `cache`      "ram:8GB" or "disk:/nvme/cache:200GB": what is the same in each epoch is kept, as far as that goes
                 (finished pixels, pixels of a bounded size, or files' bytes), for all ranks of the node
    `limits`     what one image may cost (pixels, JPEG scans, bytes); beyond them a sample is bad
    `instruction_set`  "scalar", "portable", "avx2" or "avx512" forces a level; all give the same bits

    Iterating takes one epoch. A pass that reaches its end goes on to the next epoch; one that is broken off starts the
    same epoch again. Raises UsageError for arguments that do not fit the dataset, before anything is read.
    """

    def __init__(
        self,
        data: Dataset | Where,
        fields: Mapping[str, Field] | None = None,
        *,
        view: View | Sequence[View] | None = None,
        view_from: str | None = None,
        batch_size: int | Budget,
        buckets: Buckets | None = None,
        shuffle: bool = False,
        seed: int = 0,
        remainder: Remainder = "short",
        threads: int | None = None,
        prefetch: int = 3,
        on_error: OnError = "replace",
        max_bad: float = 0.01,
        quarantine: str | os.PathLike[str] | None = None,
        map: SampleMap | None = None,
        map_workers: int = 0,
        multiprocessing_context: str | BaseContext | None = None,
        batch_map: BatchMap | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        output: Output = "torch",
        device: str | torch.device | None = None,
        cache: str | None = None,
        limits: Limits | None = None,
        instruction_set: str = "best",
    ) -> None:
        dataset = data if isinstance(data, Dataset) else open_dataset(data)
        rank, world_size = rank_and_world_size(rank, world_size)
        order = Order(world_size=world_size, rank=rank, shuffle=shuffle, seed=seed, remainder=remainder)
        check_fields(fields)
        chosen: Mapping[str, Field] = dict(fields) if fields is not None else obvious_fields(dataset)
        columns = resolve_columns(dataset, chosen, view_from)
        if view is not None and not columns.images:
            raise UsageError("view: expected a field of pixels to cut, got none; leave view out")
        check_values(threads, prefetch, on_error, max_bad, output, chosen)
        check_skip(on_error, world_size)
        check_map_workers(map_workers, multiprocessing_context, map)
        self._placement = None if device is None else place_fields(device, output, chosen, map, batch_map)
        if self._placement is not None:
            chosen = self._placement.fields
            columns = resolve_columns(dataset, chosen, view_from)
        check_level(instruction_set)
        program = compile_view(view)
        plan = plan_of(
            dataset,
            order,
            batch_size=batch_size,
            buckets=buckets,
            program=program,
            images=_first_images(columns, threads, limits),
        )
        check_last_batch(plan, map)
        bounds = Limits() if limits is None else limits
        self._recipe = Recipe(
            dataset=dataset,
            plan=plan,
            program=program,
            fields=chosen,
            images=columns.images,
            raws=columns.raws,
            values=columns.values,
            points=columns.points,
            threads=default_threads() if threads is None else threads,
            prefetch=prefetch,
            on_error=on_error,
            max_bad=max_bad,
            quarantine=None if quarantine is None else Quarantine(Path(quarantine)),
            output=output,
            map=map,
            map_workers=map_workers,
            multiprocessing_context=multiprocessing_context,
            batch_map=batch_map,
            level=instruction_set,
            limits=bounds,
            cache=None
            if cache is None
            else open_cache(cache, dataset, plan, program, columns.images, columns.raws, bounds).owned_by(self),
        )
        self._budget = isinstance(batch_size, Budget)
        self._epoch = 0
        self._restored = 0  # the step at which the next pass starts
        self._positioned = False
        self._received = 0  # batches that the consumer has of epoch _epoch
        self._memory: PinnedMemory | PooledMemory = PooledMemory(prefetch, len(self._recipe.parts))
        if self._placement is not None and self._placement.pinned:
            self._memory = PinnedMemory(self._placement.device)
        self._latest: weakref.ref[LoaderIterator] | None = None
        self._pass: Pass | None = None  # the latest one, for its statistics

    @property
    def dataset(self) -> Dataset:
        return self._recipe.dataset

    @property
    def batch_size(self) -> int:
        """Samples per rank; under a Budget about their mean over an epoch's batches."""
        return self._recipe.plan.batch_size

    @property
    def rank(self) -> int:
        return self._recipe.plan.rank

    @property
    def world_size(self) -> int:
        return self._recipe.plan.world_size

    @property
    def samples(self) -> int:
        """Samples of an epoch over all ranks; those that "wrap" repeats count once."""
        plan = self._recipe.plan
        return plan.length - plan.left_out

    @property
    def threads(self) -> int:
        """Native threads that read, decode and resample."""
        return self._recipe.threads

    @property
    def epoch(self) -> int:
        """The epoch that the next pass takes, or that the present one is in."""
        return self._epoch

    @property
    def next_step(self) -> int:
        """The step at which the next pass starts: 0 unless a state was loaded, or `seek` called, since the last."""
        return self._restored

    @property
    def positioned(self) -> bool:
        """Whether `set_epoch`, `seek` or `load_state_dict` has been called since the last pass began."""
        return self._positioned

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self._recipe.plan.steps

    def __iter__(self) -> LoaderIterator:
        step, self._restored = self._restored, 0
        self._received = step
        self._positioned = False
        iterator = LoaderIterator(self, epoch=self._epoch, step=step)
        self._latest = weakref.ref(iterator)
        return iterator

    def __repr__(self) -> str:
        plan = self._recipe.plan
        fields = ", ".join(self._recipe.fields)
        ranks = f", rank {plan.rank} of {plan.world_size}" if plan.world_size > 1 else ""
        size = f"about {plan.batch_size}" if self._budget else plan.batch_size
        return f"Loader: {len(self):,} batches of {size}{ranks} of {fields} from {self.dataset!r}"

    def set_epoch(self, epoch: int) -> None:
        """The next pass takes this epoch. For the current one, a restored position is kept."""
        if type(epoch) is not int or epoch < 0:
            raise UsageError(f"set_epoch: expected an int of at least 0, got {epoch!r}")
        if epoch != self._epoch:
            self._move(epoch, 0)
        self._positioned = True

    def seek(self, epoch: int, step: int) -> None:
        """The next pass takes this epoch from this step on, below `len(self)`. Nothing is read to get there."""
        for name, value, end in (("epoch", epoch, 1 << 64), ("step", step, len(self))):
            if type(value) is not int or not 0 <= value < end:
                raise UsageError(f"seek: expected {name} to be an int from 0 to {end - 1}, got {value!r}")
        self._move(epoch, step)

    def _move(self, epoch: int, step: int) -> None:
        self._epoch, self._restored, self._received = epoch, step, step
        self._positioned = True
        self._latest = None  # a pass still held no longer moves the position

    def as_dataloader(self) -> LoaderDataLoader:
        """A torch DataLoader of these batches, for frameworks that insist on one. It adds no copy, thread or process.

        Raises UsageError where PyTorch is not installed.
        """
        need_torch("as_dataloader()")
        from headrace.compat.frameworks.dataloader import as_dataloader

        return as_dataloader(self)

    def state_dict(self) -> dict[str, int | str | bool]:
        """Where the consumer is: JSON of a few hundred bytes, the same on every rank.

        It counts batches that the consumer has received, not those that are prefetched.
        """
        return self.state_at(self._epoch, self._received)

    def state_at(self, epoch: int, step: int) -> dict[str, int | str | bool]:
        """What `state_dict` says once the consumer has received the first `step` batches of `epoch`."""
        state = state_after(
            self._recipe.plan,
            epoch=epoch,
            steps=step,
            dataset=self.dataset.fingerprint,
            core=_core.codec_versions(),
        )
        return state.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass goes on where `state` was saved, also at another world size of the same global batch.

        Raises StateError for a state of another dataset, seed, order or global batch.
        """
        found = resume(
            State.from_dict(state),
            self._recipe.plan,
            dataset=self.dataset.fingerprint,
            core=_core.codec_versions(),
        )
        if found.warning is not None:
            warnings.warn(found.warning, stacklevel=2)
        self._move(found.epoch, found.step)

    def stats(self) -> Stats | None:
        """What the latest pass has done so far; printed, it says which stage limits.

        None before this process (a fork is another) has begun a pass.
        """
        return None if self._pass is None or self._pass.foreign else self._pass.stats()

    def begin_pass(self, epoch: int, step: int) -> Pass:
        """For an iterator: starts what makes the batches of `epoch` from `step` on."""
        # The lane first: what it may raise leaves no thread behind, and pinned memory, which the runner allocates in a
        # thread of its own, finds the device's context and does not make one on device 0.
        lane = None if self._placement is None else self._placement.lane()
        runner = Runner(self._recipe, self._memory, epoch=epoch, step=step)
        self._pass = runner if lane is None else DevicePass(runner, lane)
        return self._pass

    def mind(self, begun: Pass) -> None:
        """For an iterator: a consumer that holds many batches is told so."""
        if isinstance(self._memory, PooledMemory):
            self._memory.mind(begun.batch_bytes, begun.held_batches)

    def note_received(self, iterator: LoaderIterator, epoch: int, steps: int) -> None:
        """For an iterator: the consumer has `steps` batches of `epoch`; only the latest one moves the position."""
        if self._latest is None or self._latest() is not iterator or self._epoch != epoch:
            return
        self._received = steps
        if steps == len(self):
            self._epoch, self._received = epoch + 1, 0


def _first_images(columns: Columns, threads: int | None, limits: Limits | None) -> Images | None:
    """The column whose sizes views are drawn from."""
    if not columns.images:
        return None
    _, field, column = columns.images[0]
    return Images(column=column, exif=isinstance(field, Image) and field.exif, threads=threads, limits=limits)
