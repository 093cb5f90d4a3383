"""Passes over a loader that a framework drives: where each starts, and what of it the consumer has received."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from headrace.errors import UsageError
from headrace.loader.framework_source import LoaderSource, close


class Passes:
    """Starts passes over one loader, at the epochs that a framework announces or where the user left off."""

    def __init__(self, source: LoaderSource) -> None:
        self.source = source
        self._announced: int | None = None
        self._offset = 0  # from epochs as announced to the loader's
        self._served: ServedPass | None = None

    def announce(self, epoch: int) -> None:
        """The next pass is a framework's for this epoch."""
        self._announced = epoch

    def batches(self) -> Iterator[Any]:
        """One pass. It starts with its first batch: Lightning makes the iterator before it announces the epoch."""
        self._served = None
        self._settle()
        iterator = iter(self.source)
        try:
            yield from iterator
        finally:
            close(iterator)

    def parts(self) -> Iterator[Part]:
        """One pass, of which a framework takes what parts it wants: those of its rank, perhaps from a later step on."""
        self._settle()
        source = self.source
        served = self._served = ServedPass(source)
        try:
            for step in range(served.first_step, len(source)):
                for rank in range(source.world_size):
                    yield Part(served, step=step, rank=rank)
        except GeneratorExit:
            served.close()
            raise
        served.finish()

    def _settle(self) -> None:
        """Moves the loader to where the pass starts.

        Some frameworks announce epochs; others count the passes of this process, from 0 again after a resume. So a
        position that the user chose says where to start, and what is announced only how far to go on from there.
        """
        if self._announced is None:
            return
        if self.source.positioned:
            self._offset = self.source.epoch - self._announced
        else:
            self.source.set_epoch(self._announced + self._offset)

    def start_state(self) -> dict[str, Any]:
        """The loader's state at the start of the pass whose parts are being taken, else of the next pass."""
        if self._served is not None and self._served.open:
            return self.source.state_at(self._served.epoch, self._served.first_step)
        return self.source.state_at(self.source.epoch, self.source.next_step)

    def state_before_latest(self) -> dict[str, Any]:
        """The loader's state without the batch that was taken last, for a framework that has not handed it on yet."""
        if self._served is None or self.source.positioned:
            return self.source.state_dict()
        return self._served.state_before_latest


class ServedPass:
    """A pass whose batches a framework takes one by one. Its iterator is made when the first is."""

    def __init__(self, source: LoaderSource) -> None:
        self.source = source
        self.first_step = source.next_step
        self.open = True
        self.epoch = source.epoch
        self.state_before_latest = source.state_dict()
        self._iterator: Iterator[Any] | None = None
        self._next_step = self.first_step

    def take(self, step: int, rank: int) -> Any:
        """The loader's next batch, which must be that of this step and rank."""
        self._check_rank(rank)
        if self._iterator is None:
            self._start(step)
        elif step != self._next_step:
            raise UsageError(
                f"expected step {self._next_step}, got {step}: steps are dealt out to more ranks than the "
                f"{self.source.world_size} that this loader was made for; pass it rank= and world_size="
            )
        return self._take_next()

    def _check_rank(self, rank: int) -> None:
        if rank != self.source.rank:
            raise UsageError(
                f"expected the parts of rank {self.source.rank}, got one of rank {rank}: a loader reads its own rank's "
                "part only. Leave Accelerate's dispatch_batches off, and pass the loader the process's rank= and "
                "world_size="
            )

    def _start(self, step: int) -> None:
        if (self.source.epoch, self.source.next_step) != (self.epoch, step):
            self.source.seek(self.epoch, step)
        self._iterator = iter(self.source)
        self._next_step = step

    def _take_next(self) -> Any:
        assert self._iterator is not None
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

    def finish(self) -> None:
        """All parts were given out. Where none was taken the epoch is through as well."""
        self.open = False
        if self._iterator is None:
            self.source.seek(self.epoch + 1, 0)

    def close(self) -> None:
        """The framework gave up the pass."""
        self.open = False
        if self._iterator is not None:
            close(self._iterator)


class Part(Sequence[int]):
    """One rank's part of the global batch of one step: its positions in the epoch, those of a whole batch always."""

    def __init__(self, served: ServedPass, *, step: int, rank: int) -> None:
        source = served.source
        first = (step * source.world_size + rank) * source.batch_size
        self._positions = range(first, first + source.batch_size)
        self._served = served
        self._step = step
        self._rank = rank

    def take(self) -> Any:
        """The loader's batch."""
        return self._served.take(self._step, self._rank)

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self._positions[index]
