"""Base of the resumable samplers, which tracks passes over epochs and the training loop's position."""

from __future__ import annotations

import sys
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch.utils.data import DataLoader, Sampler

from headrace.dropins.tracked_loader import TrackedIterator, TrackedLoader
from headrace.errors import StateError, UsageError
from headrace.foreign_arguments import KnownArguments
from headrace.plan import EpochPlan, SamplePlan, State, state_at
from headrace.system import ProcessRank


@dataclass(eq=False)
class SamplerPass:
    """Pass of a sampler over the rest of an epoch. A step is one yielded item: a list of indices, or an index."""

    epoch: int
    start: int
    """Samples of the epoch before this pass, over all ranks."""
    steps: int
    """Steps from `start` to the epoch's end."""
    drawn: int = 0
    """Steps drawn by the DataLoader, including prefetched steps."""
    received: int | None = None
    """Steps received by the training loop; None if they are not counted."""
    ended: bool = False
    again: bool = False
    """True if `set_epoch` requested this epoch again after this pass."""
    tracker: weakref.ref[object] | None = None
    """Weak reference to the object that counts `received`."""

    @property
    def taken(self) -> int:
        """Steps received if they are counted, else steps drawn."""
        return self.drawn if self.received is None else self.received

    @property
    def known(self) -> bool:
        """True if `taken` is exactly the training loop's position."""
        return self.received is not None or self.drawn == 0

    @property
    def finished(self) -> bool:
        return self.ended_after(self.taken)

    def ended_after(self, taken: int) -> bool:
        return self.ended or 0 < self.steps == taken


T = TypeVar("T")


class PlannedSampler(KnownArguments, Sampler[T]):
    """Base of the resumable samplers, which tracks the training loop's position in passes over epochs.

    Each pass covers one epoch, and the next pass the next epoch, even after a `break`, unless `set_epoch` sets it. If
    nothing was taken from a pass, the next pass starts at the same position.
    """

    def __init__(self, plan: EpochPlan | SamplePlan, *, dataset: str, place: ProcessRank) -> None:
        """Begin at epoch 0. `dataset` identifies the dataset in a state and must match on resume."""
        super().__init__()
        self._plan = plan
        self._dataset = dataset
        self._place = place
        self._pass = SamplerPass(0, 0, plan.steps)

    @abstractmethod
    def _steps_from(self, samples: int) -> int:
        """Return the number of steps left in an epoch after its first `samples` over all ranks."""

    @abstractmethod
    def _samples_after(self, samples: int, steps: int) -> int:
        """Return the samples of an epoch consumed over all ranks `steps` steps after the first `samples`."""

    @abstractmethod
    def _draw(self, epoch: int, samples: int) -> Iterator[T]:
        """Yield the steps left in an epoch after its first `samples` over all ranks."""

    @abstractmethod
    def _resume(self, state: State) -> tuple[int, int]:
        """Return (epoch, samples consumed in it over all ranks). Raises StateError for a state of another run."""

    @property
    def rank(self) -> int:
        return self._plan.rank

    @property
    def world_size(self) -> int:
        return self._plan.world_size

    @property
    def left_out(self) -> int:
        """Samples left out per epoch, over all ranks. Low is good."""
        return self._plan.left_out

    @property
    def repeated(self) -> int:
        """Repeated samples per epoch, over all ranks. Low is good."""
        return self._plan.repeated

    @property
    def epoch(self) -> int:
        """Epoch of the current pass, or of the next pass once it has finished."""
        return self._pass.epoch + 1 if self._pass.finished else self._pass.epoch

    def __len__(self) -> int:
        """Return the number of steps in a whole epoch, the same on every rank."""
        return self._plan.steps

    def __iter__(self) -> Iterator[T]:
        self._place.check(type(self).__name__)
        # A DataLoader with workers calls iter() twice before it draws. The second pass then equals the first, since an
        # untaken pass does not move the position. A tracked pass may exist before its DataLoader draws.
        tracker = None if self._pass.tracker is None else self._pass.tracker()
        if tracker is None or self._pass.drawn > 0:
            self._pass = self._next_pass()
        self._pass.ended |= self._pass.steps == 0
        return self._counted(self._pass)

    def _counted(self, current: SamplerPass) -> Iterator[T]:
        for step in self._draw(current.epoch, current.start):
            current.drawn += 1
            yield step

    def _next_pass(self) -> SamplerPass:
        latest = self._pass
        if not latest.taken and not latest.finished:
            return SamplerPass(latest.epoch, latest.start, self._steps_from(latest.start))
        return SamplerPass(latest.epoch + (not latest.again), 0, self._plan.steps)

    def begin_tracked(self, tracker: TrackedIterator) -> SamplerPass:
        """Begin the next pass, with `received` counted by the tracked loader's iterator."""
        self._pass = self._next_pass()
        self._pass.tracker, self._pass.received = weakref.ref(tracker), 0
        return self._pass

    def track(self, loader: DataLoader[Any]) -> TrackedLoader:
        """Wrap `loader` to count each batch as the training loop receives it.

        `loader` is a DataLoader with this sampler as its `batch_sampler` or `sampler`. Iterate over the result: its
        `state_dict`, and this sampler's, then count exactly the batches it has yielded, not prefetched ones.
        """
        return TrackedLoader(self, loader)

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at this epoch. The current epoch restarts, or continues from a restored position."""
        if type(epoch) is not int or epoch < 0:
            raise UsageError(f"set_epoch: expected an int of at least 0, got {epoch!r}")
        if epoch != self._pass.epoch or self._pass.finished:
            self._pass = SamplerPass(epoch, 0, self._plan.steps)
        else:
            self._pass.again = True

    def state_dict(self, *, received: int | None = None) -> dict[str, int | str | bool]:
        """Return the training loop's position as a JSON dict of a few hundred bytes, the same on every rank.

        A DataLoader draws ahead of the loop, so received batches must be counted: by `track`, by torchdata's
        StatefulDataLoader, or by you. In the last case pass the steps of this pass that the loop has `received`: lists
        for a batch sampler, indices for a sample sampler. Raises StateError if the count is unknown.
        """
        current = self._pass
        if received is not None:
            if type(received) is not int or not 0 <= received <= current.drawn:
                raise UsageError(
                    f"received: expected an int from 0 to the {current.drawn} steps drawn in this pass, got "
                    f"{received!r}; count from where the pass began, also in a pass that was resumed"
                )
            return self._state_after(current, received)
        if _asked_by_torchdata():
            return self._state_at(current.epoch, self._samples_after(current.start, current.drawn))
        if not current.known:
            raise StateError(
                f"state_dict: expected to know what the training loop has received, got only that the DataLoader has "
                f"drawn {current.drawn} of the {current.steps} steps of this pass over epoch {current.epoch}, ahead of "
                "the loop; iterate over sampler.track(loader), or count and pass state_dict(received=...)"
            )
        return self._state_after(current, current.taken)

    def _state_after(self, current: SamplerPass, taken: int) -> dict[str, int | str | bool]:
        if current.ended_after(taken):
            return self._state_at(current.epoch + 1, 0)
        return self._state_at(current.epoch, self._samples_after(current.start, taken))

    def _state_at(self, epoch: int, samples: int) -> dict[str, int | str | bool]:
        # A sampler decodes nothing, so its state holds no codec versions.
        return state_at(self._plan, epoch=epoch, samples=samples, dataset=self._dataset, core="").to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the next pass at the position of `state`.

        Raises StateError for a state of another dataset, seed or order.
        """
        epoch, start = self._resume(State.from_dict(state))
        self._pass = SamplerPass(epoch, start, self._steps_from(start))


def _asked_by_torchdata() -> bool:
    """Return True if torchdata's StatefulDataLoader called `state_dict`.

    StatefulDataLoader calls it right after a draw and stores the state until the loop receives the batch. Only then are
    the steps drawn the right count. It passes nothing that identifies it, so the caller's module name decides.
    """
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("torchdata.stateful_dataloader.")
