"""Made-up programs of augmentations: the tables that Python's descriptions compile to, of any shape the core takes."""

from __future__ import annotations

import random
from itertools import chain

import numpy as np

PARAMETERS, COLUMNS, CONSTANTS = 6, 7, 8
SEQUENCE, CHOICE, ORDER, AUGMIX = 1, 2, 3, 4
HUE, SOLARIZE, POSTERIZE, BLUR, ERASE, SOLARIZE_ADD, AFFINE, PERSPECTIVE, ELASTIC = 13, 16, 17, 21, 23, 24, 40, 41, 42
PIXEL_KINDS, GEOMETRIC_KINDS = range(10, 25), (AFFINE, PERSPECTIVE, ELASTIC)
FIXED, UNIFORM, STEPS, NORMAL = range(4)

Rows = list[list[float]]


def row(kind: int, children: int, parameters: Rows, constants: list[float], rng: random.Random) -> list[float]:
    every = [*parameters, *[[0.0] * COLUMNS] * (PARAMETERS - len(parameters))]
    start = [kind, children, rng.choice([1, 1, 0.5]), rng.choice([1, 0.05, 2, 0.3])]
    return [*start, *chain.from_iterable(every), *constants, *[0.0] * (CONSTANTS - len(constants))]


def parameter(rng: random.Random) -> list[float]:
    low, high = rng.choice([0, rng.uniform(-2, 2), 0.9]), rng.uniform(-2, 3)
    distribution = rng.randrange(4)
    x, y = 0.0, 0.0
    if distribution == STEPS:
        x = rng.choice([1, 2, 10, 31])
    if distribution == NORMAL:
        x, y = rng.uniform(-0.2, 1.2), rng.choice([0, 0.05, 1])
    return [distribution, low, high, x, y, rng.randrange(2), rng.choice([0, 0, 1, 8])]


def operation(rng: random.Random, kinds: list[int]) -> Rows:
    kind = rng.choice(kinds)
    parameters = [parameter(rng) for _ in range(rng.randrange(1, PARAMETERS + 1))]
    fill = [rng.randrange(2), 9, 8, 7]
    constants: list[float] = []
    if kind == HUE:
        parameters = [[UNIFORM, -0.5, 0.5, 0, 0, 0, 0]]
    elif kind == SOLARIZE:
        constants = [rng.randrange(2)]
    elif kind == POSTERIZE:
        constants = [rng.randrange(3)]
    elif kind == BLUR:
        parameters = [[UNIFORM, 0.1, 2, 0, 0, 0, 0]]
        constants = [rng.choice([1, 3, 23]), rng.choice([1, 5, 9])]
    elif kind == ERASE:
        constants = [0.02, 0.33, 0.3, 3.3, 1, 2, 3, rng.randrange(3)]
    elif kind == SOLARIZE_ADD:
        constants = [128]
    elif kind == AFFINE:
        angle, scale = [UNIFORM, -200, 200, 0, 0, 0, 0], [UNIFORM, 0.4, 2, 0, 0, 0, 0]
        shear = [STEPS, 0, 0.4, 9, 0, 1, 0]
        parameters = [angle, parameter(rng), parameter(rng), scale, shear, shear]
        constants = [*fill, rng.randrange(5), rng.randrange(2), rng.randrange(2)]
    elif kind == PERSPECTIVE:
        constants = [*fill, rng.choice([0, 0.5, 1])]
    elif kind == ELASTIC:
        parameters = [[UNIFORM, 0, 40, 0, 0, 0, 0]] * 2 + [[UNIFORM, 0.5, 4, 0, 0, 0, 0]] * 2
        constants = fill
    return [row(kind, 0, parameters, constants, rng)]


def node(rng: random.Random, kinds: list[int], depth: int, groups: tuple[int, ...]) -> Rows:
    if depth == 0 or rng.random() < 0.5:
        return operation(rng, kinds)
    kind = rng.choice(groups)
    count = 1 if kind == AUGMIX else rng.randrange(1, 5)
    turns = [rng.randrange(1, count + 1), rng.randrange(2)]
    mixture = [rng.randrange(1, 4), rng.choice([-1, 1, 2]), rng.choice([0.3, 1, 2.5])]
    constants = {CHOICE: turns, AUGMIX: mixture}
    # One mixture does not hold another.
    below = tuple(group for group in groups if group != AUGMIX) if kind == AUGMIX else groups
    children = [node(rng, kinds, depth - 1, below) for _ in range(count)]
    return [row(kind, len(children), [], constants.get(kind, []), rng), *chain.from_iterable(children)]


def program(seed: int, *, geometric: bool = True) -> np.ndarray:
    """float64 [nodes, 54]"""
    rng = random.Random(seed)
    kinds = [*PIXEL_KINDS, *(GEOMETRIC_KINDS * 2 if geometric else ())]
    groups = (SEQUENCE, CHOICE, ORDER, AUGMIX)
    rows = [row for _ in range(rng.randrange(1, 4)) for row in node(rng, kinds, 3, groups)]
    return np.array(rows, np.float64)
