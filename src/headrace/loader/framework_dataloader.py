"""`as_dataloader`: a loader as a torch DataLoader, for frameworks that insist on one."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from headrace.errors import UsageError
from headrace.loader.framework_source import Iterates, LoaderSource, close, source_of

Conversion = Callable[[Iterator[Any]], Iterator[Any]]
"""Generator function that yields each batch in another structure."""


class ServedPass:
    """Pass that a framework takes batch by batch. Its iterator starts with the first batch."""

    def __init__(self, source: LoaderSource, begin: Callable[[], Iterator[Any]]) -> None:
        self.source = source
        self._begin = begin
        self.epoch, self.first_step = source._next_start
        self.open = True
        self.state_before_latest = source.state_dict()
        self._iterator: Iterator[Any] | None = None
        self._next_step = self.first_step

    def take(self, step: int, rank: int) -> Any:
        """Return the loader's next batch, which must belong to this step and rank."""
        if rank != self.source.rank:
            raise UsageError(
                f"expected the parts of rank {self.source.rank}, got one of rank {rank}: a loader reads its own rank's "
                "part only. Leave Accelerate's dispatch_batches off, and pass the loader the process's rank= and "
                "world_size="
            )
        if self._iterator is None:
            if self.source._next_start != (self.epoch, step):
                self.source.seek(self.epoch, step)
            self._iterator = self._begin()
            self._next_step = step
        elif step != self._next_step:
            raise UsageError(
                f"expected step {self._next_step}, got {step}: steps are dealt out to more ranks than the "
                f"{self.source.world_size} that this loader was made for; pass it rank= and world_size="
            )
        self.state_before_latest = self.source.state_dict()
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise UsageError(
                f"expected {len(self.source)} batches, as the loader's length says, got {self._next_step}; restore "
                "states through the DataLoader that as_dataloader made, not through the loader inside it"
            ) from None
        self._next_step += 1
        if self._next_step == len(self.source):
            close(self._iterator)
        return batch

    def end(self, *, is_through: bool) -> None:
        """End the pass. If all parts were given out and none was taken, the epoch is complete as well."""
        self.open = False
        if is_through and self._iterator is None:
            self.source.seek(self.epoch + 1, 0)
        elif not is_through and self._iterator is not None:
            close(self._iterator)


class RankPart(list[int]):
    """One rank's part of a step's global batch: its positions in the epoch, always as many as in a full batch."""

    def __init__(self, served: ServedPass, *, step: int, rank: int) -> None:
        source = served.source
        first = (step * source.world_size + rank) * source.batch_size
        super().__init__(range(first, first + source.batch_size))
        self.take = partial(served.take, step, rank)
        """Function that returns the loader's batch."""


T = TypeVar("T")


def as_dataloader(loader: LoaderSource | Iterates, convert: Conversion | None = None) -> LoaderDataLoader:
    """Return a torch DataLoader over `loader`'s batches: the same objects, without a process, thread or pinning.

    `convert` is a generator function that gets the loader's batches and yields each in the structure that a script
    takes, such as `[images, labels]`.

    `loader` is a `Loader`, a `ThreadDataLoader`, or any object that has `len` and iterates over its rank's batches, one
    epoch per iteration. `state_dict` and `load_state_dict`, `set_epoch`, `epoch`, `batch_size`, `rank` and `world_size`
    are used if it has them. Rank and world size default to the process group's, or torchrun's. From then on, set the
    loader's epoch and state through the DataLoader.

    Raises UsageError for a loader without a length, and for a ThreadDataLoader that gives all samples to every rank.
    """
    return LoaderDataLoader(source_of(loader), convert)


def _converted(batches: Iterator[Any], convert: Conversion) -> Iterator[Any]:
    """Yield a pass's batches in another structure. Closing it ends the pass."""
    try:
        yield from convert(batches)
    finally:
        close(batches)


class LoaderDataLoader(DataLoader[Any]):
    """DataLoader that `as_dataloader` returns: the loader's batches, its length and its state.

    Frameworks announce epochs through the sampler or the dataset. A position that the user chose (`set_epoch` or
    `load_state_dict`, here or on the loader) takes precedence: the next pass starts there, and later announcements
    count from it.
    """

    def __init__(self, source: LoaderSource, convert: Conversion | None = None) -> None:
        parts = self._parts = PartSampler(source, convert)
        dataset = PartDataset(parts)
        super().__init__(dataset, batch_sampler=parts, collate_fn=unchanged)
        # DataLoader takes a sampler or a batch sampler, but frameworks look at both. The sampler shows whether ranks
        # are handled, the batch sampler what to distribute. After construction, DataLoader refuses to set them.
        vars(self).update(sampler=RankSampler(parts, dataset), batch_size=source.batch_size)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # DataLoader's own iterator would fetch by sampler
        return self._parts.batches()

    def __len__(self) -> int:
        return len(self._parts.source)

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at this epoch. The current epoch continues from a restored position."""
        self._parts.source.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the consumer's position, also in a loop over Accelerate's DataLoader, which is a batch ahead."""
        return self._parts.state_dict(before_latest=_fetched_ahead(self.dataset))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the next pass where `state` was saved. Raises StateError for another loader's state."""
        self._parts.source.load_state_dict(state)


class PartDataset(Dataset[Any]):
    """Dataset of the loader's batches, by RankPart. Its length is an epoch over all ranks, without repeated samples."""

    def __init__(self, parts: PartSampler) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return self._parts.source.samples

    def __getitem__(self, part: RankPart) -> Any:
        return self.__getitems__(part)

    def __getitems__(self, part: RankPart) -> Any:
        """Return the loader's batch. Raises UsageError for anything but this rank's parts, step after step."""
        if not isinstance(part, RankPart):
            raise UsageError(
                f"expected a rank's part of a batch, got {reprlib.repr(part)}: something samples or splits anew what "
                "the loader has cut already. Leave Accelerate's split_batches and dispatch_batches off, and pass no "
                "sampler"
            )
        return part.take()

    def set_epoch(self, epoch: int) -> None:
        """Record the epoch of the next pass, which Accelerate announces."""
        self._parts.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state at the start of this pass: torchdata's StatefulDataLoader counts its own fetches."""
        return self._parts.start_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._parts.source.load_state_dict(state)


class PartSampler(Sampler[RankPart]):
    """Batch sampler of every rank's part of each step, in the order in which Accelerate deals batches out to ranks.

    Its passes over the loader start at the epochs that a framework announces, or where the user left off.
    """

    drop_last = False  # the loader's length excludes dropped samples

    def __init__(
        self,
        source: LoaderSource,
        convert: Conversion | None = None,
        *,
        batch_size: int | None = None,
        drop_last: bool = False,
    ) -> None:
        if not isinstance(source, LoaderSource):  # Lightning passes a sampler, a batch size and drop_last
            raise UsageError(
                f"expected the loader's own batches, got {type(source).__name__} to sample by: give the loader itself "
                "to Lightning's predict, and where overfit_batches is set, not what as_dataloader made"
            )
        self.source = source
        self._convert = convert
        self._announced: int | None = None
        self._offset = 0  # from announced epochs to the loader's epochs
        self._served: ServedPass | None = None

    @property
    def batch_size(self) -> int:
        """Samples per rank."""
        return self.source.batch_size

    def __len__(self) -> int:
        return len(self.source) * self.source.world_size

    def __iter__(self) -> Iterator[RankPart]:
        """Yield the parts of a pass. A framework takes its own rank's parts, perhaps from a later step on."""
        self._settle()
        source = self.source
        served = self._served = ServedPass(source, self._begin)
        is_through = False
        try:
            for step in range(served.first_step, len(source)):
                for rank in range(source.world_size):
                    yield RankPart(served, step=step, rank=rank)
            is_through = True
        finally:
            served.end(is_through=is_through)

    def batches(self) -> Iterator[Any]:
        """Yield a pass. It starts with its first batch: Lightning calls iter() before it announces the epoch."""
        self._served = None
        self._settle()
        iterator = self._begin()
        try:
            yield from iterator
        finally:
            close(iterator)

    def _begin(self) -> Iterator[Any]:
        iterator = iter(self.source)
        return iterator if self._convert is None else _converted(iterator, self._convert)

    def set_epoch(self, epoch: int) -> None:
        """Record that a framework's next pass is for this epoch."""
        self._announced = epoch

    def _settle(self) -> None:
        """Move the loader to the start of the pass.

        Some frameworks announce epochs; others count the passes of this process, from 0 again after a resume. Therefore
        the pass starts at a position that the user chose, and later announcements count from there.
        """
        if self._announced is None:
            return
        if self.source._positioned:
            self._offset = self.source.epoch - self._announced
        else:
            self.source.set_epoch(self._announced + self._offset)

    def start_state(self) -> dict[str, Any]:
        """Return the loader's state at the start of the pass in progress, else of the next pass."""
        if self._served is not None and self._served.open:
            return self.source._state_at(self._served.epoch, self._served.first_step)
        return self.source._state_at(*self.source._next_start)

    def state_dict(self, *, before_latest: bool) -> dict[str, Any]:
        """Return the loader's state: `before_latest` batch for a framework that has not delivered the latest batch."""
        if not before_latest or self._served is None or self.source._positioned:
            return self.source.state_dict()
        return self._served.state_before_latest


class RankSampler(DistributedSampler[Any]):
    """Sampler that draws nothing: it marks ranks as handled, and receives the epoch from Lightning."""

    def __init__(self, parts: PartSampler, dataset: PartDataset) -> None:
        source = parts.source
        super().__init__(dataset, num_replicas=source.world_size, rank=source.rank, shuffle=False)
        self._parts = parts

    def set_epoch(self, epoch: int) -> None:
        """Record the epoch of the next pass, which Lightning announces."""
        self._parts.set_epoch(epoch)


def unchanged(batch: T) -> T:
    """Return the batch, which is collated already."""
    return batch


def _fetched_ahead(dataset: Dataset[Any]) -> bool:
    """Return True if Accelerate holds a batch back: it fetches one batch ahead to detect the last one."""
    if "accelerate" not in sys.modules:
        return False
    from accelerate.state import GradientState  # type: ignore[import-untyped]  # it ships no types

    under_way = [prepared for prepared in GradientState().dataloader_references if prepared is not None]
    return any(prepared.dataset is dataset and not prepared.end_of_dataloader for prepared in under_way)
