"""A `ThreadDataLoader` as `as_dataloader` asks for it: its own count of epochs and steps, and its sampler's ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

from headrace.dropins.thread_loader.sampler_state import drawing_sampler
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.errors import UsageError
from headrace.system.rank import rank_of_process


class ThreadSource:
    """Keeps no count of its own, so the loader may be moved from outside as well."""

    def __init__(self, loader: ThreadDataLoader) -> None:
        """Raises UsageError where there are several ranks, and a sampler that gives all samples to each."""
        self._loader = loader
        self._sampler = drawing_sampler(loader)
        self._place = rank_of_process(*(_place(self._sampler) or (None, None)))
        self.rank, self.world_size = self._place.rank, self._place.world_size
        _check_parted(self._sampler, self.world_size)

    @property
    def batch_size(self) -> int:
        """Samples per rank; 1 where the batch sampler does not say."""
        return self._loader.batch_size or getattr(self._loader.batch_sampler, "batch_size", None) or 1

    @property
    def samples(self) -> int:
        """Those that Headrace's samplers repeat count once. Of others, as many as whole batches hold."""
        loader = self._loader
        if isinstance(loader.dataset, IterableDataset) or loader.drop_last or not hasattr(self._sampler, "left_out"):
            return len(loader) * self.batch_size * self.world_size
        left_out: int = self._sampler.left_out
        return len(loader.dataset) - left_out  # type: ignore[arg-type]  # the sampler has had its length

    @property
    def epoch(self) -> int:
        return self._loader.epoch

    @property
    def next_step(self) -> int:
        return self._loader.next_step

    @property
    def positioned(self) -> bool:
        return self._loader.positioned

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        self._place.check("as_dataloader")
        return iter(self._loader)

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def seek(self, epoch: int, step: int) -> None:
        self._loader.seek(epoch, step)

    def state_at(self, epoch: int, step: int) -> dict[str, Any]:
        raise UsageError(
            "expected a headrace.Loader, got a ThreadDataLoader: it does not know its state at a step that it is not "
            "at. Leave Accelerate's use_stateful_dataloader off, and pass what as_dataloader made to "
            "register_for_checkpointing"
        )

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._loader.load_state_dict(state)


def _place(sampler: object) -> tuple[int, int] | None:
    """Rank and world size by which the sampler parts the dataset, as Headrace's and torch's own have them."""
    rank = getattr(sampler, "rank", None)
    world_size = getattr(sampler, "world_size", getattr(sampler, "num_replicas", None))
    return None if rank is None or world_size is None else (rank, world_size)


def _check_parted(sampler: object, world_size: int) -> None:
    if world_size > 1 and type(sampler) in (RandomSampler, SequentialSampler):
        raise UsageError(
            f"as_dataloader: expected a sampler that gives each of {world_size} ranks a part, got "
            f"{type(sampler).__name__}, which gives all of the dataset to each; pass "
            "batch_sampler=ResumableBatchSampler(dataset, batch_size) or sampler=DistributedSampler(dataset)"
        )
