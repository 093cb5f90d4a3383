"""Names for steps and their parts in the timelines of torch.profiler and, with CUDA, of Nsight Systems."""

from __future__ import annotations

from types import ModuleType
from typing import Any

NAMES = {
    "w": "headrace: data wait",
    "h": "headrace: host to device",
    "b": "headrace: backward",
    "o": "headrace: optimizer",
    "c": "headrace: collective",
    "": "headrace: closure",
}


class Ranges:
    """Steps end within optimizers, so ranges may overlap; hence NVTX's ranges that have a start and an end, and not the
    ones that are pushed and popped."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._open: list[tuple[Any, Any]] = []
        self._step: tuple[Any, Any] | None = None

    def step(self, number: int) -> None:
        """The step before ends, and this one begins."""
        self._end(self._step)
        self._step = self._start(f"headrace: step {number}")

    def enter(self, kind: str) -> None:
        self._open.append(self._start(NAMES[kind]))

    def leave(self) -> None:
        if self._open:
            self._end(self._open.pop())

    def close(self) -> None:
        while self._open:
            self.leave()
        self._end(self._step)
        self._step = None

    def _start(self, name: str) -> tuple[Any, Any]:
        record = self._torch.autograd.profiler.record_function(name)
        record.__enter__()
        has_nvtx = self._torch.cuda.is_initialized()
        return record, self._torch.cuda.nvtx.range_start(name) if has_nvtx else None

    def _end(self, started: tuple[Any, Any] | None) -> None:
        if started is None:
            return
        record, nvtx = started
        if nvtx is not None:
            self._torch.cuda.nvtx.range_end(nvtx)
        record.__exit__(None, None, None)
