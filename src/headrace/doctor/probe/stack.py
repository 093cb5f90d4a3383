"""Where a thread stood: code and line of each of its frames, and no frame."""

from __future__ import annotations

import gc
import sys
from traceback import FrameSummary, format_list
from types import CodeType, FrameType

Stack = list[tuple[CodeType, int]]
"""Innermost first."""
MOST_FRAMES = 200
COLLECTS_ANYWHERE = sys.version_info < (3, 12)
"""Whether any allocation may begin a garbage collection; later Pythons begin one between two instructions only."""


def frame_of(thread: int) -> FrameType | None:
    """The frame that a thread is in; None for one that has ended.

    Not while garbage may be collected: sys._current_frames makes frames under a lock of the interpreter's, and a
    collection then that frees a threading.local asks for that lock again, and never gets it (CPython gh-106883).
    """
    is_put_off = COLLECTS_ANYWHERE and gc.isenabled()
    if is_put_off:
        gc.disable()
    try:
        return sys._current_frames().get(thread)
    finally:
        if is_put_off:
            gc.enable()


def stack_of(frame: FrameType | None) -> Stack:
    """A copy, made while no other Python code can run. Whoever keeps a frame keeps what its variables hold, and that is
    let go in another thread than the user's."""
    stack: Stack = []
    while frame is not None and len(stack) < MOST_FRAMES:
        stack.append((frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
    return stack


def text_of(stack: Stack) -> str:
    """As a traceback shows it, innermost last."""
    return "".join(format_list([FrameSummary(code.co_filename, line, code.co_name) for code, line in reversed(stack)]))
