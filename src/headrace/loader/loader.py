"""`Loader`: what to load, and the position of its consumer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

from headrace._core import Limits
from headrace.augment import AnyMixing, Augmentation
from headrace.data import Dataset, Where
from headrace.errors import UsageError, warn_caller
from headrace.fields import Field
from headrace.foreign_arguments import KnownArguments
from headrace.loader.decoding.pixels import pixel_versions
from headrace.loader.device_augment import AugmentOn
from headrace.loader.loader_spec import LoaderSpec, feed_of
from headrace.loader.position import DevicePass, LoaderPass, LoaderPosition
from headrace.loader.ray_workers.cluster import Workers
from headrace.loader.recipe import BatchMap, DecodeOn, OnError, Output, SampleMap
from headrace.plan import (
    Buckets,
    Budget,
    Remainder,
    RepeatFactor,
    SequencePacking,
    ShuffleOrder,
    State,
    resume,
)
from headrace.views import View

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    import torch
    from numpy.typing import NDArray


class Loader(LoaderPosition, KnownArguments, of="Loader"):
    """Batches of a dataset, decoded and cropped by native threads, the same on every machine and thread count.

    `data` is a Dataset or anything that `headrace.open` takes. `fields` maps names of the batch to Image, Mask, Depth,
    Normals, Boxes, Keypoints, InstanceMasks, Geometry, Text, Array, Label, Raw or Key; the default is the obvious
    columns. Each batch is a dict: images [N, C, H, W], with copies [N, copies, C, H, W], masks [N, H, W], labels [N],
    boxes a list of N, texts a dict of ids and mask [N, L].

    `view`       one geometry for all fields of pixels of a sample, or a list of views that compose; a field may have
                 its own view: `Image(view=)`
    `view_from`  the field of pixels whose size the view is drawn from (default: the first)
    `augment`    augmentations of the sample, run after the view: images take all of them, other fields of pixels and
                 places take the geometric ones, with the same draw. `Image(augment=…)` is for one field
    `augment_on` "device": `device` runs the colour operations, with the same draws, and other operations raise.
                 "device-compiled" builds a kernel of each with torch.compile
    `batch_size` samples per rank; the global batch is `batch_size * world_size`. Or a Budget, which sizes each batch
    `buckets`    which samples may share a batch. With buckets, a Budget or a RandomScale, all images of a global batch
                 have one shape, the same on every rank; without, batches of unequal images raise
    `pack`       texts that share rows of tokens. `batch_size` then counts rows
    `shuffle`, `seed`  these two and the epoch determine the order of each epoch and every random view
    `order`      scope of `shuffle`: "global", over the whole epoch, or "windowed", by blocks of neighbouring samples in
                 windows, so that reads are large: for data in an object store. Windowed(…) sets their sizes
    `weights`    one number per sample, or the name of a column: samples are drawn with replacement in proportion
    `balanced`   the name of a column of classes: each class is drawn equally often. Or RepeatFactor
    `repeats`    repetitions of each sample in an epoch, each with another view, on different ranks if possible
    `samples_per_epoch`  draws of an epoch over all ranks; default: the number of samples, or RepeatFactor's number
    `remainder`  the epoch's last samples: "short" batch, "drop", or "wrap" (fill up from the epoch's start)
    `threads`    native threads that read, decode and resample; default: autotuned, at first and at most the available
                 cores, shared by the ranks of the node
    `prefetch`   batches in flight or ready ahead of the consumer; default: autotuned, at first 3
    `on_error`   "replace" puts another sample in the place of one that cannot be decoded, and counts it in `stats()`.
                 "raise" raises
    `max_bad`    share of this rank's samples of a pass that may be bad; one more ends the run
    `quarantine`  file that names the bad samples, a line of JSON for each
    `map`        `map(sample, rng)` for each sample, in threads
    `batch_map`  `batch_map(batch, rng)` for each batch
    `batch`      `MixUp`, `CutMix` or a RandomChoice of them: each image is mixed with its neighbour in the batch, after
                 `map` and before `batch_map`, and labels become float32 [N, classes]. `batch_size` must be even; a
                 short last batch is not mixed
    `map_workers`  number of processes for `map` instead of threads, for Python code that holds the GIL. Results do not
                 depend on it. Processes start with each pass, with the state of `map` at that time
    `multiprocessing_context`  start method: "fork", "forkserver", "spawn" or a context; default: the program's
    `rank`, `world_size`  default: from torch.distributed once it is initialised, else from the launcher's variables
                 (torchrun, Lightning, MPI, SLURM), else 0 and 1
    `output`     "torch" tensors or "numpy" arrays
    `device`     device of the batches, such as "cuda". Batches are made in pinned memory and copied on a side stream.
                 Float images travel as bytes and become floats on the device (the same bits), unless `map` or
                 `batch_map` needs them
    `decode`     "device": nvImageCodec decodes JPEGs on `device`, which also cuts and resizes them; the core decodes
                 what the device cannot. For machines with few cores and a GPU that has room
    `cache`      "ram:8GB" or "disk:/nvme/cache:200GB": caches the deterministic part of the pipeline as far as it goes
                 (finished pixels, pixels of a bounded size, tokens, or files' bytes), for all ranks of the node
    `limits`     upper bounds for one image (pixels, JPEG scans, bytes); a sample beyond them is bad
    `instruction_set`  "scalar", "portable", "avx2" or "avx512" forces a level; all give the same bits
    `workers`    "ray" or RayWorkers(…): Ray actors on other machines make the batches, the same bits in the same order

    Each pass takes one epoch, and the next pass the next epoch, also after a `break`, unless `set_epoch` sets it. A
    restored position is continued once. The end of a pass that followed a complete one prefetches the next epoch,
    except with `map`, `batch_map`, `workers`, `decode="device"` or data in a store.

    Raises UsageError for arguments that do not fit the dataset, before any data is read. Raises UnknownArgumentError, a
    TypeError, for arguments of torch's DataLoader, naming the replacement.
    """

    def __init__(
        self,
        data: Dataset | Where,
        fields: Mapping[str, Field] | None = None,
        *,
        view: View | Sequence[View] | None = None,
        view_from: str | None = None,
        augment: Augmentation | str | Sequence[Augmentation | str] | None = None,
        augment_on: AugmentOn = "cpu",
        batch_size: int | Budget,
        buckets: Buckets | None = None,
        pack: SequencePacking | None = None,
        shuffle: bool = False,
        seed: int = 0,
        order: ShuffleOrder = "global",
        weights: str | Sequence[float] | NDArray[Any] | None = None,
        balanced: str | RepeatFactor | None = None,
        repeats: int = 1,
        samples_per_epoch: int | None = None,
        remainder: Remainder = "short",
        threads: int | None = None,
        prefetch: int | None = None,
        on_error: OnError = "replace",
        max_bad: float = 0.01,
        quarantine: str | os.PathLike[str] | None = None,
        map: SampleMap | None = None,
        map_workers: int = 0,
        multiprocessing_context: str | BaseContext | None = None,
        batch_map: BatchMap | None = None,
        batch: AnyMixing | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        output: Output = "torch",
        device: str | torch.device | None = None,
        decode: DecodeOn = "core",
        cache: str | None = None,
        limits: Limits | None = None,
        instruction_set: str = "best",
        workers: Workers = None,
    ) -> None:
        super().__init__()
        given = locals()
        spec = LoaderSpec(**{each.name: given[each.name] for each in dataclasses.fields(LoaderSpec)})
        self._feed = feed_of(spec)
        self._budget = isinstance(batch_size, Budget)

    @property
    def dataset(self) -> Dataset:
        return self._feed.recipe.dataset

    @property
    def batch_size(self) -> int:
        """Samples per rank, or rows with `pack`; under a Budget, about the mean over an epoch's batches."""
        return self._feed.recipe.plan.batch_size

    @property
    def rank(self) -> int:
        return self._feed.recipe.plan.rank

    @property
    def world_size(self) -> int:
        return self._feed.recipe.plan.world_size

    @property
    def samples(self) -> int:
        """Samples or draws of an epoch over all ranks; samples that "wrap" repeats count once."""
        plan = self._feed.recipe.plan
        return plan.length - plan.left_out

    @property
    def threads(self) -> int:
        """Native threads that read, decode and resample: the given number, or the autotuned one."""
        return self._feed.tuner.setting.threads

    @property
    def prefetch(self) -> int:
        """Batches in flight or ready ahead of the consumer: the given number, or the autotuned one."""
        return self._feed.tuner.setting.prefetch

    def __len__(self) -> int:
        """Return the steps of an epoch, the same on every rank."""
        return self._feed.recipe.plan.steps

    def __getitem__(self, _: object) -> Never:
        raise UsageError(
            "expected an iteration over batches, got an index: for batch in loader, or loader.as_dataloader() where a "
            "framework wants a DataLoader; torch's DataLoader cannot wrap a Loader"
        )

    def __reduce__(self) -> Never:
        raise UsageError(
            "expected a Loader to stay in its process, got it pickled: pickle loader.state_dict(), make the Loader in "
            "the other process, and load the state there"
        )

    def __repr__(self) -> str:
        plan = self._feed.recipe.plan
        fields = ", ".join(self._feed.recipe.fields)
        ranks = f", rank {plan.rank} of {plan.world_size}" if plan.world_size > 1 else ""
        size = f"about {plan.batch_size}" if self._budget else f"{plan.batch_size}"
        size += "" if self._feed.recipe.packed is None else " rows"
        return f"Loader: {len(self):,} batches of {size}{ranks} of {fields} from {self.dataset!r}"

    def _state_at(self, epoch: int, step: int) -> dict[str, int | str | bool]:
        return self._feed.state_at(epoch, step)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Continue where `state` was saved, also at another world size of the same global batch.

        Raises StateError for a state of another dataset, seed, order or global batch. Raises ChangedError if a file or
        object that holds samples was replaced since; `allow_changed=True` continues at the same count of samples with
        the current content.
        """
        saved = State.from_dict(state)
        found = resume(
            saved,
            self._feed.recipe.plan,
            dataset=None if allow_changed else self.dataset.fingerprint,
            core=pixel_versions(),
            repeats=self.dataset.occurrences is not None,
        )
        if not allow_changed:
            self._feed.content.check(saved.content)
        if found.warning is not None:
            warn_caller(found.warning)
        self._move(found.epoch, found.step)

    def _check_place(self) -> None:
        self._feed.rank.check(type(self).__name__)

    def _begin_pass(self, epoch: int, step: int) -> LoaderPass:
        """Start the producer of the batches of `epoch` from `step` on."""
        # The lane first: its errors leave no thread behind. Pinned memory, which the runner allocates in its own
        # thread, then finds the device's context and creates none on device 0.
        lane = self._feed.lane()
        runner = self._feed.begin(epoch, step)
        self._pass = runner if lane is None else DevicePass(runner, lane)
        return self._pass

    def _prefetch_epoch(self, epoch: int, remaining: int) -> None:
        self._feed.prefetch_epoch(epoch, remaining)

    def _warn_of_held(self, begun: LoaderPass) -> None:
        self._feed.warn_of_held(begun)
