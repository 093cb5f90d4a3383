"""Headrace's decoder in place of Pillow's."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.case import WORTH, Case
from headrace.doctor.causes.stage_names import named
from headrace.doctor.quantities import percent, time
from headrace.doctor.remedies.factor import factor
from headrace.doctor.remedies.proposal import LOW, MEDIUM, Proposal, tried, with_factor, would_not
from headrace.doctor.remedies.stages import name_of, scaled, share_of

CODE = "native-decode"
ASSUMED = (0.3, 1.0)
KEY = "native_decode"
"""In `changes`."""


def native_decode(case: Case) -> Iterator[Proposal]:
    title = "Headrace's decoder in place of Pillow's"
    decoding, by_pillow = case.stages("decode"), case.stages("decode", label="Pillow")
    if not decoding:
        yield would_not(CODE, title, "Nothing is decoded while batches are made.")
        return
    share = share_of(by_pillow)
    if share < WORTH:
        heaviest = decoding[0]
        said = f"Pillow's decoding is {percent(share)} of making a batch"
        other = "" if heaviest in by_pillow else f"; the rest is {named(name_of(heaviest))}"
        yield would_not(CODE, title, f"{said}{other}.")
        return
    left = factor(case.calibrations, CODE, "image", assumed=ASSUMED)
    yield tried(
        case,
        with_factor(case, left, scaled(by_pillow)),
        code=CODE,
        title=title,
        why=f"Pillow decodes for {time(sum(one.wall_us for one in by_pillow))} a sample, {percent(share)} of making a "
        f"batch. {left.basis}",
        confidence=MEDIUM if left.is_measured else LOW,
        change=scaled(by_pillow)(left.usual),
        costs=["resized pixels differ from Pillow's by one level of 255 at most"],
        hint="headrace.decode_image(path, view=headrace.Resize(…)), which decodes only the window that is used, in "
        "place of Image.open(path).convert(…).resize(…)",
        changes={KEY: True} if _can_be_injected(case) else None,
    )


def _can_be_injected(case: Case) -> bool:
    """Pillow's own methods are answered for where that gives the same pixels: a whole PNG, or a bilinear resize of an
    image that was not decoded yet. Samples of this loader show whether there is any."""
    return any(KEY in look.sample.takes for finder in case.finders for look in finder.looks())
