"""A loader as a torch DataLoader, for frameworks that insist on one. Its batches are the loader's own, not copies.

Frameworks treat a DataLoader in two ways. Lightning iterates over it as it is, unless its sampler is one to replace.
Accelerate, and with it Hugging Face's Trainer, takes it apart: it deals what the batch sampler gives to the ranks in
turn, and builds a DataLoader of its own from that and the dataset. A loader has cut its rank's part of every global
batch already, so its batch sampler gives a `Part` for each rank of each step; every rank is then left with its own,
and the dataset answers each with the loader's next batch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from headrace.compat.frameworks.passes import Part, Passes
from headrace.compat.frameworks.thread_source import ThreadSource
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.errors import UsageError
from headrace.loader.framework_source import Iterates, LoaderSource, source_of

T = TypeVar("T")


def as_dataloader(loader: LoaderSource | Iterates) -> LoaderDataLoader:
    """A torch DataLoader over `loader`'s batches: the same objects, no process, no thread and no pinning of its own.

    `loader` is a `Loader`, a `ThreadDataLoader`, or anything else that has `len` and iterates over its rank's batches,
    an epoch each time. Of such a one `state_dict` and `load_state_dict`, `set_epoch`, `epoch`, `batch_size`, `rank` and
    `world_size` are used where it has them; rank and world size are else the process group's, or torchrun's. From then
    on its epoch and its state are set through the DataLoader.

    Raises UsageError for a loader without a length, and for a ThreadDataLoader that gives all samples to every rank.
    """
    if isinstance(loader, ThreadDataLoader):
        source_of(loader)  # for its length
        return LoaderDataLoader(ThreadSource(loader))
    return LoaderDataLoader(source_of(loader))


class LoaderDataLoader(DataLoader[Any]):
    """Made by `as_dataloader`: the loader's batches, its length and its state.

    Frameworks announce epochs through the sampler or the dataset. A position that the user chose (`set_epoch` or
    `load_state_dict`, here or on the loader) outranks that: the next pass starts there, and what is announced later
    counts from it.
    """

    def __init__(self, source: LoaderSource) -> None:
        passes = Passes(source)
        dataset = PartDataset(passes)
        parts: Any = PartSampler(passes)  # torch asks for lists; Accelerate is content with sequences, as is `dataset`
        super().__init__(dataset, batch_sampler=parts, collate_fn=unchanged)
        # DataLoader takes a sampler or a batch sampler, but frameworks look at both: at the sampler for whether ranks
        # are taken care of, at the batch sampler for what to deal out. Once built it refuses to have them set.
        vars(self).update(sampler=RankSampler(passes, dataset), batch_size=source.batch_size)
        self._passes = passes

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # DataLoader's own iterator would fetch by sampler
        return self._passes.batches()

    def __len__(self) -> int:
        return len(self._passes.source)

    def set_epoch(self, epoch: int) -> None:
        """The next pass takes this epoch. For the current one, a restored position is kept."""
        self._passes.source.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer is, also in a loop over what Accelerate prepared, which fetches a batch ahead of it."""
        return self._passes.state_before_latest() if _fetched_ahead(self.dataset) else self._passes.source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass goes on where `state` was saved. Raises StateError where it is another loader's."""
        self._passes.source.load_state_dict(state)


class PartDataset(Dataset[Any]):
    """The loader's batches, by `Part`. It has as many samples as an epoch has over all ranks, repeated ones apart."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes

    def __len__(self) -> int:
        return self._passes.source.samples

    def __getitem__(self, part: Part) -> Any:
        return self.__getitems__(part)

    def __getitems__(self, part: Part) -> Any:
        """The loader's batch. Raises UsageError for anything but this rank's parts, step after step."""
        if not isinstance(part, Part):
            raise UsageError(
                f"expected a rank's part of a batch, got {_shown(part)}: something samples or splits anew what the "
                "loader has cut already. Leave Accelerate's split_batches and dispatch_batches off, and pass no sampler"
            )
        return part.take()

    def set_epoch(self, epoch: int) -> None:
        """Accelerate announces the next pass."""
        self._passes.announce(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the present pass began: torchdata's StatefulDataLoader counts for itself what was fetched of it."""
        return self._passes.start_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._passes.source.load_state_dict(state)


class PartSampler(Sampler[Part]):
    """For every step the part of each rank, in the order in which Accelerate deals batches out to ranks."""

    drop_last = False  # what the loader drops is not in its length

    def __init__(self, passes: Passes, *, batch_size: int | None = None, drop_last: bool = False) -> None:
        if not isinstance(passes, Passes):  # Lightning passes a sampler, a batch size and drop_last
            raise UsageError(
                f"expected the loader's own batches, got {type(passes).__name__} to sample by: give the loader itself "
                "to Lightning's predict, and where overfit_batches is set, not what as_dataloader made"
            )
        self._passes = passes

    @property
    def batch_size(self) -> int:
        """Samples per rank."""
        return self._passes.source.batch_size

    def __len__(self) -> int:
        return len(self._passes.source) * self._passes.source.world_size

    def __iter__(self) -> Iterator[Part]:
        return self._passes.parts()


class RankSampler(DistributedSampler[Any]):
    """Says that ranks are taken care of, and hears which epoch Lightning begins. Nothing samples through it."""

    def __init__(self, passes: Passes, dataset: PartDataset) -> None:
        source = passes.source
        super().__init__(dataset, num_replicas=source.world_size, rank=source.rank, shuffle=False)
        self._passes = passes

    def set_epoch(self, epoch: int) -> None:
        """Lightning announces the next pass."""
        self._passes.announce(epoch)


def unchanged(batch: T) -> T:
    """Collates what is collated already."""
    return batch


def _fetched_ahead(dataset: Dataset[Any]) -> bool:
    """Whether Accelerate holds a batch that it has not handed on: it fetches one ahead, to know the last."""
    if "accelerate" not in sys.modules:
        return False
    from accelerate.state import GradientState  # type: ignore[import-untyped]  # it ships no types

    under_way = [prepared for prepared in GradientState().dataloader_references if prepared is not None]
    return any(prepared.dataset is dataset and not prepared.end_of_dataloader for prepared in under_way)


def _shown(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 60 else f"{text[:57]}..."
