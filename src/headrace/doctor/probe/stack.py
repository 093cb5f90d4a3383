"""Where a thread stood: code and line of each of its frames, and no frame."""

from __future__ import annotations

from traceback import FrameSummary, format_list
from types import CodeType, FrameType

Stack = list[tuple[CodeType, int]]
"""Innermost first."""
MOST_FRAMES = 200


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
