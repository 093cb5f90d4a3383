"""Recovery of the configuration string from timm's policy objects."""

from __future__ import annotations

import math
from typing import Any

from headrace.augment import AUGMIX_OPERATIONS, AUTO_POLICIES, RAND_SETS, WEIGHTED, TimmPolicy, pairs_of
from headrace.fields.translation.reader import PartError, Reader


def timm_policy_of(reader: Reader, part: Any) -> TimmPolicy:
    """Translate timm's RandAugment, AutoAugment or AugMixAugment. Raises PartError for custom policies."""
    if reader.values != "bytes":
        raise PartError("it works on pictures, before they become tensors")
    lines = part.policy if hasattr(part, "policy") else [part.ops]
    first = lines[0][0]
    settings = {_settings(operation) for line in lines for operation in line}
    if len(settings) != 1:
        raise PartError("its operations have hparams of their own; make it from one string")
    deviation, most, fill, resample, translate = next(iter(settings))
    noise = "" if deviation == 0 else f"-mstd{101 if deviation == math.inf else f'{deviation:g}'}"
    if hasattr(part, "policy"):
        text = _auto_text(lines) + noise
    elif hasattr(part, "num_layers"):
        text = _rand_text(part, first) + noise + (f"-mmax{most}" if most is not None else "")
    else:
        text = _augmix_text(part, first)
        text += "" if deviation == math.inf else noise or "-mstd0"
    nearest = resample == (0,)
    if resample not in ((0,), (2,)):
        reader.note("maps resample bilinearly, not by bicubic or by one of both")
    default = 0.3 if text.startswith("augmix") else 0.45
    return TimmPolicy(
        text,
        interpolation="nearest" if nearest else "bilinear",
        fill=fill,
        translate=None if translate == default else translate,
    )


def _settings(operation: Any) -> tuple[Any, ...]:
    """Return an operation's settings, which must be equal across a policy."""
    fill = operation.kwargs["fillcolor"]
    resample = operation.kwargs["resample"]
    kinds = tuple(int(kind) for kind in (resample if isinstance(resample, tuple | list) else (resample,)))
    return (
        operation.magnitude_std,
        operation.magnitude_max,
        tuple(fill) if isinstance(fill, list | tuple) else fill,
        kinds,
        operation.hparams.get("translate_pct", 0.45),
    )


def _auto_text(lines: Any) -> str:
    found = [[(operation.name, operation.prob, operation.magnitude) for operation in line] for line in lines]
    for name, policy in AUTO_POLICIES.items():
        if found == pairs_of(policy):
            return name
    raise PartError("its operations are none of timm's policies; build it from RandomChoice and RandomApply")


def _rand_text(part: Any, first: Any) -> str:
    names = [operation.name for operation in part.ops]
    for section, operations in RAND_SETS.items():
        if names != list(operations) or (section in WEIGHTED) != (part.choice_weights is not None):
            continue
        text = f"rand-m{first.magnitude:g}-n{part.num_layers}" + (f"-{section}" if section else "")
        return text + ("" if first.prob == 0.5 else f"-p{first.prob:g}")
    raise PartError("its operations are none of timm's sets; build it from RandomChoice and RandomApply")


def _augmix_text(part: Any, first: Any) -> str:
    if [operation.name for operation in part.ops] != AUGMIX_OPERATIONS:
        raise PartError("its operations are not those of timm's AugMix")
    text = f"augmix-m{first.magnitude:g}-w{part.width}" + (f"-d{part.depth}" if part.depth > 0 else "")
    return text + ("" if part.alpha == 1 else f"-a{part.alpha:g}")
