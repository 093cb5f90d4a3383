"""Compilation of augmentations: what Image and Loader are given becomes one program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace import _core
from headrace.augment.program import AUGMIX, CHOICE, ERASE, ORDER, Augmentation, AugmentProgram, Node
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
    if _something_follows_an_erasure(nodes):
        raise UsageError(f"{where}: expected RandomErasing to come last, since it writes the batch's own values")
    table = np.stack([row for node in nodes for row in node.rows()])
    table.flags.writeable = False
    try:
        _core.Augmentation(table)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    noise = any(operation.kind == ERASE and operation.constants[-1] for operation in operations)
    return AugmentProgram(table, frozenset(operation.kind for operation in operations), noise)


def _something_follows_an_erasure(nodes: Sequence[Node]) -> bool:
    """Tell whether nodes that are run one after another may do anything to an image that one of them erased."""

    def erases(node: Node) -> bool:
        return any(operation.kind == ERASE for operation in node.operations())

    if not any(map(erases, nodes)):
        return False
    if any(map(erases, nodes[:-1])):
        return True
    last = nodes[-1]
    if last.kind == AUGMIX or (last.kind == ORDER and len(last.children) > 1):
        return True
    if last.kind == CHOICE:
        return last.constants[0] > 1 or any(_something_follows_an_erasure([child]) for child in last.children)
    return bool(last.children) and _something_follows_an_erasure(last.children)
