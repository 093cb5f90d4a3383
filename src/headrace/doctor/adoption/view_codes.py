"""Views of the Loader as code: from observed windows, or from a transform of a known library."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import headrace as hr
from headrace.doctor.explain import Box, LeafPlacement
from headrace.doctor.explain.look import LeafPath, LiveTransform, Look, LookedSample
from headrace.doctor.explain.placements import is_scaled
from headrace.doctor.explain.samples import LeafExplanation, explain_look

_MOST_CHOSEN = 4
"""Maximum number of distinct scales that count as chosen from a list; more are drawn from a range."""
_SCALES = 16
"""Number of scales that represent a range."""
_LEAST_SEEN, _LEAST_SPREAD = 4, 0.2
"""Minimum number of random windows, and the minimum spread of their positions, as a share of the possible range.

Eight random windows miss the spread one time in 500.
"""
_SLACK = 0.03
"""Tolerance of the shares and ratios of windows, which are whole pixels."""


def seen_both_ways(
    look: Look, explained: Mapping[LeafPath, LeafExplanation]
) -> tuple[Look, Mapping[LeafPath, LeafExplanation]]:
    """Return a look and its explanation. If all samples happen to be flipped, all but the first are repeated ones.

    No view explains that; random flips of eight samples agree in one look of 256, those of few samples more often.
    """
    bys = [(leaf.near or leaf).by for leaf in explained.values() if leaf.is_random]
    if not any(_are_turned_alike(getattr(by, "placements", ())) for by in bys):
        return look, explained
    makings: dict[int, list[LookedSample]] = {}
    for each in look.samples:
        makings.setdefault(each.index, []).append(each)
    first, *others = makings.values()
    again = replace(look, samples=[*first, *(each for made in others for each in (*made[1:], made[0]))])
    return again, explain_look(again)


def _are_turned_alike(placements: Sequence[LeafPlacement]) -> bool:
    """Return True if all samples are flipped, or all are upside down."""
    ways = [one.is_flipped for one in placements], [one.is_upside_down for one in placements]
    return bool(placements) and any(map(all, ways))


def view_code(
    placements: Sequence[LeafPlacement],
    shapes: Sequence[tuple[int, ...]],
    sources: Sequence[tuple[int, ...]],
    layout: str,
    *,
    is_random: bool,
    pads: bool = False,
) -> str | None:
    """Return the view that gives these placements, as code; None if the Loader has none.

    `is_random`: True if repetitions of a sample differ, without which no view is random. `pads`: True if a view may
    pad.
    """
    sizes = [(shape[0], shape[1]) if layout != "CHW" else (shape[1], shape[2]) for shape in shapes]
    is_padded = any(one.is_padded(size) for one, size in zip(placements, sizes, strict=True))
    if any(one.is_transposed for one in placements) or (is_padded and not pads):
        return None
    flips, turns = [one.is_flipped for one in placements], [one.is_upside_down for one in placements]
    if _are_turned_alike(placements) or (any((*flips, *turns)) and not is_random):
        return None
    is_first = any(one.is_turned_first for one in placements)
    flip = ", flip=0.5" if any(flips) and not is_first else ""
    wholes = [Box(0, 0, *source[:2]) for source in sources]
    size = sizes[0]
    if len(set(sizes)) > 1:  # files as they are, in batches of one
        are_whole = all(not one.is_resampled and one.window == box for one, box in zip(placements, wholes, strict=True))
        return _flipped("None", any(flips), any(turns), is_first) if are_whole else None
    if is_padded:
        flip += ", pad_if_needed=True"
    for find in (_of_wholes, *(() if is_padded else (_of_windows,))):
        found = find(placements, wholes, size, flip)
        if is_padded and "RandomCrop" not in (found or ""):
            return None
        if found is not None and (is_random or "Random" not in found):
            return _flipped(found, any(flips) and is_first, any(turns), is_first)
    return None


def _flipped(view: str, across: bool, down: bool, is_first: bool) -> str:
    """Return a view with flips before or after its other steps."""
    flips = ["hr.RandomHorizontalFlip(0.5)"] * across + ["hr.RandomVerticalFlip(0.5)"] * down
    steps = [] if view == "None" else steps_of(view)
    steps = [*flips, *steps] if is_first else [*steps, *flips]
    return f"[{', '.join(steps)}]" if flips else view


def _of_wholes(
    placements: Sequence[LeafPlacement], wholes: Sequence[Box], size: tuple[int, int], flip: str
) -> str | None:
    if any(one.is_resampled for one in placements):  # a scale of 1 may be among those drawn
        placements = [
            one if one.is_resampled else _of_whole(one, box) for one, box in zip(placements, wholes, strict=True)
        ]
    if any(one.window != whole for one, whole in zip(placements, wholes, strict=True)):
        return None
    if all(one.size == size for one in placements):
        return f"hr.Resize({size}{flip})"
    shorts, sizes = sorted({min(one.size) for one in placements}), {one.size for one in placements}
    whole = shorts[0] if len(sizes) > 1 else next(iter(sizes))
    if all(is_scaled(one.size, (box.height, box.width)) for one, box in zip(placements, wholes, strict=True)):
        whole = shorts[0]
    elif len(sizes) > 1:
        return None
    if len(shorts) > 1:
        return f"[hr.RandomScale({_spread(shorts)}), hr.RandomCrop({size}{flip})]"
    over = [(one.size[0] - size[0], one.size[1] - size[1]) for one in placements]
    is_centred = all(one.at == (round(by[0] / 2), round(by[1] / 2)) for one, by in zip(placements, over, strict=True))
    if not is_centred and not _are_anywhere([one.at for one in placements], over):
        return None
    return f"[hr.Resize({whole}), hr.{'CenterCrop' if is_centred else 'RandomCrop'}({size}{flip})]"


def _of_whole(one: LeafPlacement, whole: Box) -> LeafPlacement:
    """Return a window that is not resampled as a part of the whole picture."""
    return replace(one, window=whole, size=(whole.height, whole.width), at=(one.window.top, one.window.left))


def _spread(shorts: Sequence[int]) -> list[int]:
    """Return the short sides of a random scale: the observed ones, or evenly spaced values if there are many."""
    if len(shorts) <= _MOST_CHOSEN:
        return list(shorts)
    step = (shorts[-1] - shorts[0]) / (_SCALES - 1)
    return sorted({round(shorts[0] + place * step) for place in range(_SCALES)})


def _of_windows(
    placements: Sequence[LeafPlacement], wholes: Sequence[Box], size: tuple[int, int], flip: str
) -> str | None:
    cuts = {(one.window.height, one.window.width) for one in placements}
    pairs = list(zip((one.window for one in placements), wholes, strict=True))
    begins = [(window.top, window.left) for window, _ in pairs]
    over = [(whole.height - window.height, whole.width - window.width) for window, whole in pairs]
    if not all(_is_centre(*pair) for pair in pairs) and not _are_anywhere(begins, over):
        return None
    if len(cuts) == 1 and len({one.size for one in placements}) == 1:
        (cut,) = cuts
        is_centred = all(_is_centre(window, whole) for window, whole in pairs)
        crop = "CenterCrop" if is_centred else "RandomCrop"
        if all(one.size == cut for one in placements):
            return f"hr.{crop}({cut}{flip})"
        return f"[hr.{crop}({cut}), hr.Resize({size}{flip})]" if placements[0].size == size else None
    if any(one.size != size for one in placements):
        return None
    scale, ratio = ((round(min(each), 2), round(max(each), 2)) for each in _drawn(pairs))
    return f"hr.RandomResizedCrop({size}, scale={scale}, ratio={ratio}{flip})"


def _drawn(pairs: Sequence[tuple[Box, Box]]) -> tuple[list[float], list[float]]:
    """Return the area share of each window in its image, and its aspect ratio."""
    shares = [window.height * window.width / (whole.height * whole.width) for window, whole in pairs]
    return shares, [window.width / window.height for window, _ in pairs]


def _are_anywhere(begins: Sequence[tuple[int, int]], over: Sequence[tuple[int, int]]) -> bool:
    """Return True if windows begin at varied positions on both axes, within the range `over`."""
    for side in (0, 1):
        shares = [begin[side] / by[side] for begin, by in zip(begins, over, strict=True) if by[side] > 1]
        if len(shares) >= _LEAST_SEEN and max(shares) - min(shares) < _LEAST_SPREAD:
            return False
    return True


def _is_centre(window: Box, whole: Box) -> bool:
    over = whole.height - window.height, whole.width - window.width
    return abs(window.top - over[0] / 2) <= 0.5 and abs(window.left - over[1] / 2) <= 0.5


# Transforms of known libraries.


def known_transforms(
    look: Look, size: tuple[int, int], placements: Sequence[LeafPlacement], sources: Sequence[tuple[int, ...]]
) -> list[LiveTransform]:
    """Return the transforms of known libraries that make leaves of this size and that the Loader supports."""
    found: dict[tuple[object, ...], LiveTransform] = {}
    for each in look.transforms:
        try:
            is_known = all(becomes is not None for _, becomes, _ in each.parts)
            if is_known and draws(each) and fits(each, size, placements, sources):
                for code in (each.image, *each.augment):
                    evaluated(code)
                found.setdefault((each.image, each.view, each.augment), each)
        except (ValueError, SyntaxError, TypeError):  # a look is a file that anybody may have written
            continue
    return list(found.values())


def why_no_transform(look: Look) -> str:
    chains = [each.parts for each in look.transforms if len(each.parts) > 1]  # a part alone makes no picture
    lacking = {part: None for parts in chains for part, becomes, _ in parts if becomes is None}
    if not lacking:
        return "no transform of a known library makes it"
    names = ", ".join(re.sub(r"^<(\S+) object at .*>$", r"\1", each) for each in lacking)
    return f"the Loader lacks {names} of its transforms"


def fits(
    transform: LiveTransform,
    size: tuple[int, int],
    placements: Sequence[LeafPlacement] = (),
    sources: Sequence[tuple[int, ...]] = (),
) -> bool:
    """Return True if a transform may have made leaves of a size, and of these windows if known."""
    steps = [evaluated(step) for step in transform.view]
    sides = next((_sides(step) for step in reversed(steps) if hasattr(step, "size")), None)
    if sides != size and (sides is not None or not sources or any(_made(steps, each) != size for each in sources)):
        return False
    code = " ".join(transform.view)
    if any(one.is_flipped for one in placements) and "flip=" not in code and "RandomHorizontalFlip" not in code:
        return False  # a part of what the script does
    pairs = [(one.window, Box(0, 0, *source[:2])) for one, source in zip(placements, sources, strict=False)]
    for step in steps if pairs else ():
        if isinstance(step, hr.RandomResizedCrop):
            shares, ratios = _drawn(pairs)
            if not (_are_within(shares, step.scale) and _are_within(ratios, step.ratio)):
                return False
    return bool(steps)


def draws(transform: LiveTransform) -> bool:
    codes = (*transform.view, *transform.augment)
    return bool(transform.augment) or any("Random" in code or "flip=" in code for code in codes)


def _made(steps: Sequence[Any], source: tuple[int, ...]) -> tuple[int, int]:
    """Return the height and width that steps make of a source, if no step sets both."""
    height, width = source[:2]
    for step in steps:
        if isinstance(step, hr.Resize) and isinstance(step.size, int):
            short, long = step.size, int(step.size * max(height, width) / min(height, width))
            height, width = (short, long) if height <= width else (long, short)
    return height, width


def _sides(step: Any) -> tuple[int, int] | None:
    """Return height and width of a step's result; None if they depend on the image."""
    if not isinstance(step.size, int):
        return (step.size[0], step.size[1])
    return None if isinstance(step, hr.Resize) else (step.size, step.size)


def _are_within(values: Sequence[float], ends: tuple[float, float]) -> bool:
    return min(values) >= ends[0] * (1 - _SLACK) and max(values) <= ends[1] * (1 + _SLACK)


def steps_of(code: str) -> list[str]:
    node = ast.parse(code, mode="eval").body
    return [ast.unparse(each) for each in (node.elts if isinstance(node, ast.List) else [node])]


def argument_of(code: str, name: str) -> str:
    """Return the code of a call's keyword argument; empty if there is none."""
    node = ast.parse(code, mode="eval").body
    given = node.keywords if isinstance(node, ast.Call) else []
    return next((ast.unparse(each.value) for each in given if each.arg == name), "")


def evaluated(code: str) -> Any:
    """Return the object of a view, augmentation or image from code: `hr.NAME(…)` of literals. Else ValueError."""
    return _value(ast.parse(code, mode="eval").body)


def _is_of_pictures(found: Any) -> bool:
    """Return True for a class that opens no file on construction."""
    if not isinstance(found, type):
        return found is hr.IMAGENET
    return found in (hr.Image, hr.Normalize) or found.__module__.startswith(("headrace.views.", "headrace.augment."))


def _value(node: ast.expr) -> Any:
    call = node if isinstance(node, ast.Call) else None
    name = node if call is None else call.func
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each) for each in node.elts] if isinstance(node, ast.List) else tuple(map(_value, node.elts))
    if not isinstance(name, ast.Attribute):
        return ast.literal_eval(node)
    found: Any = getattr(hr, name.attr) if name.attr in hr.__all__ else None
    if not (isinstance(name.value, ast.Name) and name.value.id == "hr" and _is_of_pictures(found)):
        raise ValueError(f"expected a view, an augmentation or an image of headrace's, got {ast.unparse(node)}")
    if call is None:
        return found
    return found(*map(_value, call.args), **{str(each.arg): _value(each.value) for each in call.keywords})
