"""Marks on CUDA streams: timing events, of which a query never waits."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class CudaDevice:
    """The stream on which the first optimizer stepped. What is queued on another one, such as a prefetcher's copy, gets
    no mark, since times of two streams are in no order."""

    def __init__(self, torch: ModuleType) -> None:
        self._cuda = torch.cuda
        self._is_capturing = torch.cuda.is_current_stream_capturing
        self._stream: Any = None
        self.captures = 0
        """CUDA graphs being captured now, in any thread; the driver forbids queries meanwhile."""

    def follow(self) -> None:
        if self._stream is None:
            self._stream = self._cuda.current_stream()

    def record(self, spare: Any) -> Any:
        if self._stream is None or self.captures or self._is_capturing():
            return None
        if self._cuda.current_stream() != self._stream:
            return None
        event = self._cuda.Event(enable_timing=True) if spare is None else spare
        event.record(self._stream)
        return event

    def is_done(self, mark: Any) -> bool:
        return not self.captures and bool(mark.query())

    def elapsed_us(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) * 1000.0
