"""Compilation of the `augment=` argument of Image and Loader into a program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace import _core
from headrace.augment.program import AUGMIX, CHOICE, ERASE, ORDER, SEQUENCE, Augmentation, AugmentProgram, Node
from headrace.augment.timm_policies import as_augmentation
from headrace.errors import UsageError
from headrace.foreign_arguments import belongs


def compile_augment(where: str, augment: object) -> AugmentProgram | None:
    """Compile an augmentation or a list of them, run in sequence; return None if there is nothing to run.

    A str is a timm policy. Raises UsageError for any other type, and if anything but an erasure follows an erasure.
    """
    if augment is None:
        return None
    nodes: list[Node] = []
    for each in augment if isinstance(augment, list | tuple) else [augment]:
        step = as_augmentation(each)
        if not isinstance(step, Augmentation):
            raise UsageError(
                f"{where}: expected an augmentation such as hr.ColorJitter(0.4), a list of them or None, got {step!r}"
                f"{belongs(step)}"
            )
        nodes += step.nodes()
    if not nodes:
        return None
    operations = [operation for node in nodes for operation in node.operations()]
    if _something_follows_an_erasure(nodes):
        raise UsageError(
            f"{where}: expected nothing but RandomErasing after RandomErasing, since it writes the batch's own values; "
            "put it last"
        )
    table = np.stack([row for node in nodes for row in node.rows()])
    table.flags.writeable = False
    try:
        _core.Augmentation(table)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    noise = any(operation.kind == ERASE and operation.constants[-1] for operation in operations)
    return AugmentProgram(table, frozenset(operation.kind for operation in operations), noise)


def _something_follows_an_erasure(nodes: Sequence[Node]) -> bool:
    """Return True if, in a sequence of nodes, any operation but an erasure may run after an erasure."""
    first = next((place for place, node in enumerate(nodes) if _erases(node)), None)
    if first is None:
        return False
    if not all(map(_erases_alone, nodes[first + 1 :])):
        return True
    node = nodes[first]
    if _erases_alone(node):
        return False
    if node.kind == CHOICE and node.constants[0] == 1:
        return any(_something_follows_an_erasure([child]) for child in node.children)
    in_any_order = node.kind in (CHOICE, ORDER) and len(node.children) > 1
    return node.kind == AUGMIX or in_any_order or _something_follows_an_erasure(node.children)


def _erases(node: Node) -> bool:
    return any(operation.kind == ERASE for operation in node.operations())


def _erases_alone(node: Node) -> bool:
    return node.kind == ERASE or (node.kind in (SEQUENCE, CHOICE, ORDER) and all(map(_erases_alone, node.children)))
