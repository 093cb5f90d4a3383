"""Random scale, padding and crop of a script's own: the draws, sides and boxes of its code, and the views they become.

A crop whose box begins at a drawn place is a random crop, by whatever library; a resize to sides that are those of the
picture times one drawn factor is a random scale, and so is one to a drawn side with the other in proportion.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low
from typing import TYPE_CHECKING, Any

from .recipe import Certainty, RecipePart
from .sample_values import DrawnNumber, DrawnWindow, Picture, PictureSide, PictureStep, is_known

if TYPE_CHECKING:
    from .sample_expressions import ExpressionReader

SCALES = 16
"""Short sides that stand for a factor which is drawn from a range."""
_UNIFORM = ("random.uniform", "numpy.random.uniform")
_WHOLE = ("random.randint", "random.randrange", "numpy.random.randint", "torch.randint")
_CHOICE = ("random.choice", "numpy.random.choice")
_PADDING = ("PIL.ImageOps.expand", "cv2.copyMakeBorder")
_SAME = ("builtins.int", "builtins.round", "builtins.float", "numpy.round", "math.floor", "math.ceil")


def drawn_number(node: ast.Call, name: str, given: Sequence[Any]) -> DrawnNumber | None:
    """Return what a call of a generator's function draws; None of any other call."""
    place = f"{node.lineno}:{node.col_offset}"
    if name in _CHOICE and given and isinstance(given[0], list | tuple) and given[0] and _are_numbers(given[0]):
        return DrawnNumber(place, float(min(given[0])), float(max(given[0])), choices=tuple(given[0]))
    if name not in _UNIFORM + _WHOLE or not given:
        return None
    low, high = (0, given[0]) if len(given) == 1 else given[:2]
    low, high = (float(one) if _are_numbers([one]) else None for one in (low, high))
    return DrawnNumber(place, low, high)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def sides_of(picture: Picture, attribute: str) -> Any:
    """Return `width`, `height`, `size` or `shape` of a picture, which are not known themselves."""
    width, height = PictureSide("width"), PictureSide("height")
    return {"width": width, "height": height, "size": (width, height), "shape": (height, width, 3)}[attribute]


def reckoned(symbol: str, left: Any, right: Any) -> Any:
    """Return arithmetic with drawn numbers and with sides; None where it is not among what crops are made of."""
    if isinstance(right, PictureSide | DrawnNumber) and symbol in "*+" and not isinstance(left, PictureSide):
        left, right = right, left
    if isinstance(left, PictureSide) and symbol == "*":
        if isinstance(right, DrawnNumber) and left.scale is None:
            return replace(left, scale=right)
        return left if right == 1 else None
    if isinstance(left, PictureSide) and symbol in ("/", "//") and isinstance(right, PictureSide):
        is_ratio = left.scale is not None and right.scale is None and left.axis != right.axis
        return replace(left, in_proportion=True) if is_ratio else None
    if isinstance(left, DrawnNumber) and isinstance(right, int) and symbol in "+-":
        return replace(left, plus=left.plus + (right if symbol == "+" else -right))
    return None


def cropping_call(
    reader: ExpressionReader, node: ast.Call, name: str, given: list[Any], keywords: dict[str, Any]
) -> Any:
    """Return what a function makes that draws, pads or crops; None of any other."""
    first, last = given[0] if given else None, name.rpartition(".")[2]
    if (drawn := drawn_number(node, name, given)) is not None:
        return drawn
    if name in _SAME and isinstance(first, DrawnNumber | PictureSide):
        return first
    if last == "get_params":
        return _parameters(node, name, given, keywords)
    if not isinstance(first, Picture):
        return None
    if name in _PADDING or (last == "pad" and name.startswith("torchvision.transforms")):
        amounts = [*given[1:], keywords.get("border"), keywords.get("padding")]
        if is_known(amounts):
            return None
        fill = keywords.get("fill", keywords.get("value", given[2] if last == "expand" and len(given) > 2 else 0))
        if isinstance(fill, list | tuple) and len(set(fill)) == 1:
            fill = fill[0]
        return first.then(reader.step(node, "pad", fill if is_known(fill) else 0))
    if last == "crop" and len(given) == 5 and isinstance(given[1], DrawnNumber) and is_known(given[3:]):
        return first.then(reader.step(node, "crop", (given[3], given[4])))
    return None


def _parameters(node: ast.Call, name: str, given: list[Any], keywords: dict[str, Any]) -> list[Any] | None:
    """Return top, left, height and width that `get_params` of torchvision's crops draws."""
    kind = name.split(".")[-2]
    if kind == "RandomResizedCrop":
        scale, ratio = given[1:3] if len(given) == 3 else (keywords.get("scale"), keywords.get("ratio"))
        return [DrawnWindow(tuple(scale), tuple(ratio))] * 4 if is_known([scale, ratio]) and scale and ratio else None
    size = given[1] if len(given) > 1 else keywords.get("output_size")
    if kind != "RandomCrop" or not isinstance(size, list | tuple) or len(size) != 2 or not is_known(size):
        return None
    place = f"{node.lineno}:{node.col_offset}"
    return [DrawnNumber(f"{place} top", 0, None), DrawnNumber(f"{place} left", 0, None), *size]


def cropped_box(box: Any) -> tuple[int, int] | None:
    """Return height and width of a box (left, top, right, bottom) that begins at drawn places; None of any other."""
    if not isinstance(box, list | tuple) or len(box) != 4:
        return None
    width, height = (_span(box[k], box[k + 2]) for k in (0, 1))
    return None if width is None or height is None else (height, width)


def _span(first: Any, behind: Any) -> int | None:
    if isinstance(first, DrawnNumber) and isinstance(behind, DrawnNumber) and first.place == behind.place:
        return behind.plus - first.plus
    return None


def cropped_slices(reader: ExpressionReader, node: ast.expr, local: dict[str, Any]) -> tuple[int, int] | None:
    """Return height and width of `image[y : y + 256, x : x + 256]` with drawn x and y; None of any other."""
    slices = [one for one in (node.elts if isinstance(node, ast.Tuple) else [node]) if isinstance(one, ast.Slice)]
    bounds = [one for one in slices if one.lower is not None and one.upper is not None]
    if len(bounds) != 2:
        return None
    height, width = (
        _span(*(reader.value(one, local) for one in (each.lower, each.upper) if one is not None)) for each in bounds
    )
    return None if height is None or width is None else (height, width)


def scaled_size(size: Any) -> tuple[str, DrawnNumber] | None:
    """Return how (width, height) is drawn: a `factor` of both sides, or one `side` with the other in proportion."""
    if not isinstance(size, list | tuple) or len(size) != 2:
        return None
    sides = [one for one in size if isinstance(one, PictureSide) and one.scale is not None]
    drawn = [one for one in size if isinstance(one, DrawnNumber)]
    if len(sides) == 2 and sides[0].scale == sides[1].scale and sides[0].axis != sides[1].axis:
        return None if sides[0].scale is None else ("factor", sides[0].scale)
    if len(sides) == len(drawn) == 1 and sides[0].in_proportion and sides[0].scale == drawn[0]:
        return "side", drawn[0]
    return None


def with_paddings(steps: Sequence[PictureStep]) -> list[PictureStep]:
    """Return the steps, each random crop with the padding before it that makes room for it as its operand."""
    found: list[PictureStep] = []
    for step in steps:
        before = found[-1] if found and found[-1].kind == "pad" and step.kind == "crop" else None
        if before is not None:
            found[-1] = replace(step, operand=before.value if before.value is not None else 0)
        else:
            found.append(step)
    return found


def random_scale(step: PictureStep, seen: Sequence[int]) -> tuple[str, RecipePart] | None:
    """Return the view of a random scale, and its part. `seen`: short sides of files that were decoded.

    None where the sides cannot be known: no file was seen, or the bounds are no numbers.
    """
    drawn: DrawnNumber = step.value
    base = 1.0 if step.operand == "side" else float(median_low(seen)) if seen else None
    if base is None or drawn.low is None or drawn.high is None:
        return None
    if drawn.choices:
        sides = sorted({round(base * one) for one in drawn.choices})
        code = f"hr.RandomScale({tuple(sides)!r})"
    else:
        low, high = round(base * drawn.low), round(base * drawn.high)
        code = f"hr.RandomScale(tuple(range({low}, {high + 1}, {max((high - low) // SCALES, 1)})))"
    differ = step.operand == "factor" and len(set(seen)) > 1
    note = "all samples of a batch have one scale here, and all scales are as likely"
    if differ:
        note += f"; the script's are factors, these short sides are those of pictures of {base:.0f} pixels"
    certainty: Certainty = "check" if differ else "differs"
    return code, RecipePart(step.text, step.place, f"view: {code}", certainty, note, "view")
