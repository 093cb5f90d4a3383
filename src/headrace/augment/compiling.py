"""Compilation of augmentations: what Image and Loader are given becomes one program."""

from __future__ import annotations

import numpy as np

from headrace import _core
from headrace.augment.program import ERASE, Augmentation, AugmentProgram, Node
from headrace.augment.timm_policies import as_augmentation
from headrace.errors import UsageError


def compile_augment(where: str, augment: object) -> AugmentProgram | None:
    """Compile an augmentation or a list of them, run one after another; None where there is nothing to do.

    A str stands for timm's policy of that text. Raises UsageError for anything else, and for an erasure that something
    follows.
    """
    if augment is None:
        return None
    nodes: list[Node] = []
    for each in augment if isinstance(augment, list | tuple) else [augment]:
        step = as_augmentation(each)
        if not isinstance(step, Augmentation):
            raise UsageError(
                f"{where}: expected an augmentation such as hr.ColorJitter(0.4), a list of them or None, got {step!r}"
            )
        nodes += step.nodes()
    if not nodes:
        return None
    operations = [operation for node in nodes for operation in node.operations()]
    if any(operation.kind == ERASE for node in nodes[:-1] for operation in node.operations()):
        raise UsageError(f"{where}: expected RandomErasing to come last, since it writes the batch's own values")
    table = np.stack([row for node in nodes for row in node.rows()])
    table.flags.writeable = False
    try:
        _core.Augmentation(table)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    noise = any(operation.kind == ERASE and operation.constants[-1] for operation in operations)
    return AugmentProgram(table, frozenset(operation.kind for operation in operations), noise)
