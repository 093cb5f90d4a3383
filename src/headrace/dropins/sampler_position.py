"""Base of the samplers: passes over epochs, and the position that the training loop has reached."""

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
from headrace.plan import EpochPlan, SamplePlan, State, state_at
from headrace.system import ProcessRank


@dataclass(eq=False)
class SamplerPass:
    """Pass of a sampler through the rest of an epoch. Its steps are what it yields: lists of indices, or indices."""

    epoch: int
    start: int
    """Samples of the epoch that came before, over all ranks."""
    steps: int
    """Steps from there to the epoch's end."""
    drawn: int = 0
    """Steps that the DataLoader has taken, prefetched ones included."""
    received: int | None = None
    """Steps that the training loop has, or None where nobody counts them."""
    ended: bool = False
    again: bool = False
    """True if `set_epoch` asked for this epoch once more, after this pass."""
    tracker: weakref.ref[object] | None = None
    """Counts `received`, as long as it lives."""

    @property
    def taken(self) -> int:
        """Steps received, where they are counted; else steps drawn."""
        return self.drawn if self.received is None else self.received

    @property
    def known(self) -> bool:
        """True if `taken` is what the training loop has."""
        return self.received is not None or self.drawn == 0

    @property
    def finished(self) -> bool:
        return self.ended_after(self.taken)

    def ended_after(self, taken: int) -> bool:
        return self.ended or 0 < self.steps == taken


T = TypeVar("T")


class PlannedSampler(Sampler[T]):
    """Base of the samplers: passes over epochs, and the training loop's position in them.

    Each pass takes one epoch, and the next pass the next epoch, also after a `break`, unless `set_epoch` sets it. A
    pass of which nothing was taken leaves its start to the next one.
    """

    def __init__(self, plan: EpochPlan | SamplePlan, *, dataset: str, place: ProcessRank) -> None:
        """Begin at epoch 0. `dataset` identifies the dataset in a state, and must be the same to resume."""
        super().__init__()
        self._plan = plan
        self._dataset = dataset
        self._place = place
        self._pass = SamplerPass(0, 0, plan.steps)

    @abstractmethod
    def _steps_from(self, samples: int) -> int:
        """Return the steps left of an epoch, after its first `samples` over all ranks."""

    @abstractmethod
    def _samples_after(self, samples: int, steps: int) -> int:
        """Return the samples of an epoch consumed over all ranks, `steps` steps after the first `samples`."""

    @abstractmethod
    def _draw(self, epoch: int, samples: int) -> Iterator[T]:
        """Yield the steps left of an epoch, after its first `samples` over all ranks."""

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
        """Samples that an epoch leaves out, over all ranks. Low is good."""
        return self._plan.left_out

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more, over all ranks. Low is good."""
        return self._plan.repeated

    @property
    def epoch(self) -> int:
        """The epoch that the next pass takes, or that the present one is in."""
        return self._pass.epoch + 1 if self._pass.finished else self._pass.epoch

    def __len__(self) -> int:
        """Return the steps of a whole epoch, the same on every rank."""
        return self._plan.steps

    def __iter__(self) -> Iterator[T]:
        self._place.check(type(self).__name__)
        # A DataLoader with workers calls iter() twice before it draws: the second pass then is the first one again,
        # as a pass of which nothing was taken does not move the position.
        # It may be tracked by then, and its DataLoader yet to draw from it.
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
        """Begin the next pass, whose `received` the tracked loader's iterator counts."""
        self._pass = self._next_pass()
        self._pass.tracker, self._pass.received = weakref.ref(tracker), 0
        return self._pass

    def track(self, loader: DataLoader[Any]) -> TrackedLoader:
        """Return `loader`, with each batch counted as the training loop receives it.

        `loader` is a DataLoader that has this sampler as its `batch_sampler` or `sampler`. Iterate over the result: its
        `state_dict`, and this sampler's, count exactly the batches that came out of it, whatever workers have
        prefetched.
        """
        return TrackedLoader(self, loader)

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at this epoch. The current epoch starts again, or continues from a restored position."""
        if type(epoch) is not int or epoch < 0:
            raise UsageError(f"set_epoch: expected an int of at least 0, got {epoch!r}")
        if epoch != self._pass.epoch or self._pass.finished:
            self._pass = SamplerPass(epoch, 0, self._plan.steps)
        else:
            self._pass.again = True

    def state_dict(self, *, received: int | None = None) -> dict[str, int | str | bool]:
        """Return the training loop's position: JSON of a few hundred bytes, the same on every rank.

        A DataLoader draws ahead of the loop, so somebody must count what arrives: `track` does, and so does
        torchdata's StatefulDataLoader. Or pass how many of this pass's steps the loop has `received`: lists of a
        sampler of batches, indices of a sampler of samples. Raises StateError where nobody has counted.
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
        # A sampler decodes nothing, so no codec's version is part of its state.
        return state_at(self._plan, epoch=epoch, samples=samples, dataset=self._dataset, core="").to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the next pass where `state` was saved.

        Raises StateError for a state of another dataset, seed or order.
        """
        epoch, start = self._resume(State.from_dict(state))
        self._pass = SamplerPass(epoch, start, self._steps_from(start))


def _asked_by_torchdata() -> bool:
    """Return whether torchdata's StatefulDataLoader called `state_dict`.

    It asks right after it has drawn, and keeps the answer until the loop has what it drew. Only there is the number
    drawn the right count. It passes nothing that would identify it.
    """
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("torchdata.stateful_dataloader.")
