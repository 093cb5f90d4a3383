"""`compile_view`: the numbers from which the core draws each sample's window, for one view or a list of views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.foreign_arguments import belongs
from headrace.views.views import Pads, RandomHorizontalFlip, RandomQuarterTurn, View, fill_channels


@dataclass(frozen=True, eq=False)
class Program:
    """Numbers from which the core draws views.

    `ops` is float64[ops, 10], read-only, one row per step (core/view/program.hpp). `output_size` is the (height, width)
    of every output, or None if it depends on the source. `fill` is the value of padding, 0..255, for all channels or
    one per channel. `copies` is the number of windows that it cuts of each sample, None if it leaves that open.
    `scales` has tables like `ops`, one of which is drawn for each step: a single table, or a RandomScale's tables.
    """

    ops: NDArray[np.float64]
    output_size: tuple[int, int] | None
    fill: tuple[int, ...]
    scales: tuple[NDArray[np.float64], ...]
    drawn_per_step: bool = False
    multiple_of: int = 1
    copies: int | None = None


def compile_view(view: View | Sequence[View] | None) -> Program:
    """Compile a view or a list of views, applied from left to right; None takes the whole source.

    A view's `flip` is a separate step after it. Raises UsageError if steps do not compose: a resize after padding (the
    fill would be blended into the image), or two fills on one canvas.
    """
    steps = _steps(view)
    late = [step for step in steps[1:] if step.drawn_per_step]
    if late:
        raise UsageError(f"view: expected {late[0]} to come first, got {steps[0]} before it; put it first")
    _check_copies(steps)
    ops = _table(_rows(steps))
    copies = _core.copies_of(ops)
    output_size = _core.output_size(ops)
    turn = next((step for step in steps if isinstance(step, RandomQuarterTurn)), None)
    if turn is not None and output_size is None:
        raise UsageError(
            f"view: expected every turn of {turn} to give one size, got {steps}; let it follow a square crop, or put a "
            "crop after it"
        )
    if not steps or not steps[0].drawn_per_step:
        return Program(ops=ops, output_size=output_size, fill=_composed_fill(steps), scales=(ops,), copies=copies)
    scales = tuple(_table([choice, *_rows(steps)[1:]]) for choice in steps[0].choices())
    padded = steps if output_size is None else steps[1:]  # only these can pad after a fixed size
    return Program(ops, output_size, _composed_fill(padded), scales, True, steps[0].multiple_of, copies)


def _check_copies(steps: Sequence[View]) -> None:
    """Refuse two steps that make copies, and such a step after random steps, as each copy draws independently."""
    several = [at for at, step in enumerate(steps) if step.copies is not None]
    if len(several) > 1:
        first, second = steps[several[0]], steps[several[1]]
        raise UsageError(f"view: expected one step that makes copies, got {first} and {second}; leave one out")
    if several and (_core.is_random(_table(_rows(steps[: several[0]])))):
        raise UsageError(
            f"view: expected nothing random before {steps[several[0]]}, whose windows would then be of different "
            "images, as each copy draws for itself; put what is random after it"
        )


def _steps(view: View | Sequence[View] | None) -> list[View]:
    if view is None:
        return []
    steps = [view] if isinstance(view, View) else view
    if not isinstance(steps, list | tuple) or not all(isinstance(step, View) for step in steps):
        given = [step for step in steps if not isinstance(step, View)] if isinstance(steps, list | tuple) else view
        raise UsageError(
            f"view: expected a view such as hr.Resize(256), a list of views or None, got {view!r}{belongs(given)}"
        )
    return list(steps)


def _rows(steps: Sequence[View]) -> list[tuple[float, ...]]:
    rows: list[tuple[float, ...]] = []
    for step in steps:
        rows.append(step.op())
        if step.flip > 0:
            rows.append(RandomHorizontalFlip(step.flip).op())
    return rows


def _table(rows: Sequence[tuple[float, ...]]) -> NDArray[np.float64]:
    if len(rows) > _core.MAX_VIEW_OPS:
        raise UsageError(f"view: expected at most {_core.MAX_VIEW_OPS} steps (a flip is one), got {len(rows)}")
    table = np.zeros((len(rows), 10), np.float64)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    table.flags.writeable = False
    return table


def _composed_fill(steps: Sequence[View]) -> tuple[int, ...]:
    """Return the single fill of all steps that can pad."""
    padded_by: View | None = None
    fill_by: View | None = None
    for at, step in enumerate(steps):
        if step.resizes and padded_by is not None:
            raise UsageError(f"view: {step} cannot follow {padded_by}, which pads; put what resizes first")
        pads = step.pads(_core.output_size(_table(_rows(steps[:at]))))
        if pads is Pads.NEVER:
            continue
        if fill_by is not None and fill_channels(fill_by.fill) != fill_channels(step.fill):
            raise UsageError(f"view: expected one fill, got {fill_by.fill!r} and {step.fill!r} in {fill_by} and {step}")
        fill_by = step
        padded_by = step if pads is Pads.YES else padded_by
    return (0,) if fill_by is None else fill_channels(fill_by.fill)
