"""Side streams of CUDA devices, used again from pass to pass.

torch's caching allocator gives a block that was freed to the stream that it was allocated on, and to no other. A new
stream for each pass would leave behind the memory of as many passes as torch has streams in its pool (32).
"""

from __future__ import annotations

import torch

_idle: dict[torch.device, list[torch.cuda.Stream]] = {}


def borrow(device: torch.device) -> torch.cuda.Stream:
    """A stream that nobody else has been lent. Work of its last user may still be under way: it comes first."""
    try:
        return _idle[device].pop()
    except (KeyError, IndexError):
        return torch.cuda.Stream(device)


def give_back(stream: torch.cuda.Stream, device: torch.device) -> None:
    """For the next pass. Whoever gives it back enqueues nothing more on it."""
    _idle.setdefault(device, []).append(stream)
