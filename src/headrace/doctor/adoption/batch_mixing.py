"""Mixing of a script's batches: the live transform, and its code for the Loader."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from headrace.doctor.adoption.leaf_fields import UnexplainedError
from headrace.doctor.adoption.view_codes import evaluated
from headrace.doctor.explain import ValueExplanation
from headrace.doctor.explain.look import LeafPath, LiveTransform, Look
from headrace.doctor.explain.samples import LeafExplanation

_KINDS = ("MixUp", "CutMix")


def mixing_of(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> LiveTransform | None:
    """Return the transform that mixes one image and one label of each batch; None if nothing is mixed.

    Raises:
        UnexplainedError: No single transform of a known library does, or other leaves are mixed.
    """
    if not look.mixed:
        return None
    by = [explained[path].by for path in look.mixed if path in explained]
    labels = [one for one in by if isinstance(one, ValueExplanation)]
    known = [each for each in look.transforms if each.batch]
    is_pair = len(look.mixed) == len(by) == 2 and [one.kind for one in labels] == ["one-hot"]
    if len(known) != 1 or not is_pair:
        raise UnexplainedError("the script mixes the samples of a batch in it: see batch=hr.MixUp(…)")
    try:
        evaluated(known[0].batch)
    except (ValueError, SyntaxError, TypeError) as error:  # a look is a file that anybody may have written
        raise UnexplainedError("the script mixes the samples of a batch in it") from error
    return known[0]


def mixing_code(code: str, image: str, labels: str) -> str:
    """Return the code of a mixing, with the names of its fields."""
    tree = ast.parse(code, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KINDS:
            names = {"field": image, "labels": labels}
            node.keywords += [ast.keyword(name, ast.Constant(value)) for name, value in names.items()]
    return ast.unparse(tree)
