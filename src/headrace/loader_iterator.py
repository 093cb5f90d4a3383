"""`LoaderIterator`: one pass over one epoch, as the consumer sees it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Protocol

from headrace.loader import Batch, Closed, Stats
from headrace.passes import Pass


class Origin(Protocol):
    """The loader that is iterated over."""

    def __len__(self) -> int: ...
    def check_place(self) -> None: ...
    def begin_pass(self, epoch: int, step: int) -> Pass: ...
    def mind(self, begun: Pass) -> None: ...
    def note_received(self, iterator: LoaderIterator, epoch: int, steps: int) -> None: ...


class LoaderIterator(Iterator[Batch]):
    """One pass over one epoch. Ends its threads at the end of the epoch, on `close`, on an error, or when dropped.

    In a process forked in mid-epoch it goes on from the same batch, with threads of its own.
    """

    def __init__(self, loader: Origin, *, epoch: int, step: int) -> None:
        self._loader = loader
        self._epoch = epoch
        self._step = step
        self._open = True
        self._first = True
        loader.check_place()
        self._start()

    def _start(self) -> None:
        self._pass = self._loader.begin_pass(self._epoch, self._step)
        self._finalizer = weakref.finalize(self, self._pass.drop)

    def __next__(self) -> Batch:
        if not self._open:
            raise StopIteration
        try:
            self._go_on_after_fork()
            if self._first:  # a process group may have begun since this pass did
                self._loader.check_place()
                self._first = False
            batch, self._step = self._pass.take()
        except Closed:
            if self._open:  # at the end, also where the last batches were skipped as a whole
                self._loader.note_received(self, self._epoch, len(self._loader))
            self.close()
            raise StopIteration from None
        except BaseException:  # Ctrl-C too: it must not wait for a `map` that hangs
            self._open = False
            self._finalizer.detach()
            self._pass.drop()
            raise
        self._loader.note_received(self, self._epoch, self._step)
        self._loader.mind(self._pass)
        return batch

    def close(self) -> None:
        """Ends the pass: threads are joined, prefetched batches dropped."""
        self._open = False
        self._finalizer.detach()
        self._pass.close()

    def stats(self) -> Stats:
        """What this pass has done so far; printed, it says which stage limits."""
        self._go_on_after_fork()
        return self._pass.stats()

    def _go_on_after_fork(self) -> None:
        if self._open and self._pass.foreign:
            self._finalizer.detach()
            self._start()
