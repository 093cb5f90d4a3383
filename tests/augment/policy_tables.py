"""Make policy_tables.json: what torchvision's and timm's policies are, read from the packages themselves.

python tests/augment/policy_tables.py > tests/augment/policy_tables.json   # where torchvision and timm are
"""

from __future__ import annotations

import json
import random
from importlib.metadata import version

TIMM_STRINGS = (
    "rand-m9-mstd0.5-inc1",
    "rand-m7-n3-p0.8",
    "rand-m9-mstd101-inc1",
    "rand-m15-mmax20-mstd1-inc1",
    "rand-mstd1-tweights",
    "rand-m5-t3aw-n3",
    "rand-t3a",
    "augmix-m5-w4-d2",
    "augmix-m5-w4-d2-mstd0-a0.5",
    "original-mstd0.5",
    "originalr",
    "v0",
    "v0r-mstd1",
    "3a",
)
WIDTH, HEIGHT = 224, 112


def torchvision_tables() -> dict[str, object]:
    from torchvision.transforms import v2

    def space(functions, bins):
        tables = {}
        for name, (magnitudes, signed) in functions.items():
            values = magnitudes(bins, HEIGHT, WIDTH)
            tables[name] = [signed, None if values is None else [float(value) for value in values]]
        return tables

    enum = v2.AutoAugmentPolicy
    return {
        "version": version("torchvision"),
        "RandAugment": space(v2.RandAugment._AUGMENTATION_SPACE, 31),
        "TrivialAugmentWide": space(v2.TrivialAugmentWide._AUGMENTATION_SPACE, 31),
        "AutoAugment": space(v2.AutoAugment._AUGMENTATION_SPACE, 10),
        "AugMix": space(v2.AugMix._AUGMENTATION_SPACE, 10),
        "pairs": {each.value: v2.AutoAugment(each)._policies for each in (enum.IMAGENET, enum.CIFAR10, enum.SVHN)},
    }


def timm_arguments(name: str, level: float) -> list[float]:
    """All values that an operation's argument may have at a level; both signs."""
    from timm.data import auto_augment

    function = auto_augment.LEVEL_TO_ARG[name]
    if function is None:
        return []
    return sorted({float(function(level, {"translate_const": 100})[0]) for _ in range(64)})


def timm_tables() -> dict[str, object]:
    from timm.data import auto_augment

    random.seed(1)
    tables: dict[str, object] = {"version": version("timm")}
    tables["levels"] = {
        name: {str(level): timm_arguments(name, level) for level in (*range(11), 13, 20)}
        for name in auto_augment.LEVEL_TO_ARG
    }
    for text in TIMM_STRINGS:
        kind = text.split("-")[0]
        make = {"rand": auto_augment.rand_augment_transform, "augmix": auto_augment.augment_and_mix_transform}
        made = make.get(kind, auto_augment.auto_augment_transform)(text, None)

        def operation(op):
            return [op.name, op.prob, op.magnitude, min(op.magnitude_std, 1000), op.magnitude_max or 10]

        if kind == "rand":
            weights = None if made.choice_weights is None else [float(weight) for weight in made.choice_weights]
            tables[text] = {"ops": [operation(op) for op in made.ops], "count": made.num_layers, "weights": weights}
        elif kind == "augmix":
            tables[text] = {"ops": [operation(op) for op in made.ops], "mix": [made.width, made.depth, made.alpha]}
        else:
            tables[text] = {"lines": [[operation(op) for op in line] for line in made.policy]}
    return tables


if __name__ == "__main__":
    print(json.dumps({"torchvision": torchvision_tables(), "timm": timm_tables()}))
