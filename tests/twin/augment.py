"""The chain of augmentations that a program and a key give, in Python floats; core/augment/draw.hpp is its contract.

`draw_chain` takes the table that Python's descriptions compile to (core/augment/program.hpp). `augment_pixels` has what
the operations make of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from twin.exact_math import exact_exp, exact_log
from twin.rng import Stream, below, philox, uniform

SEQUENCE, CHOICE, ORDER, AUGMIX = 1, 2, 3, 4
SOLARIZE, POSTERIZE, BLUR, PERMUTE, ERASE, SOLARIZE_ADD = 16, 17, 21, 22, 23, 24
AFFINE, PERSPECTIVE, ELASTIC = 40, 41, 42
MIX_BEGIN, MIX_BRANCH, MIX_END = 90, 91, 92
FIXED, UNIFORM, STEPS, NORMAL = 0, 1, 2, 3
ARGUMENTS = 14

Words = tuple[int, int]
Drawn = tuple[int, list[float]]


@dataclass(eq=False)
class Node:
    """One row of the table, and the nodes below it."""

    kind: int
    probability: float
    weight: float
    parameters: list[Sequence[float]]
    constants: Sequence[float]
    children: list[Node]


def forest(table: Sequence[Sequence[float]]) -> list[Node]:
    """The nodes that have no parent, from rows in preorder."""
    rows = iter([[float(value) for value in row] for row in table])

    def node(row: Sequence[float]) -> Node:
        parameters = [row[at : at + 7] for at in range(4, 46, 7)]
        made = Node(int(row[0]), row[2], row[3], parameters, row[46:], [])
        made.children = [node(next(rows)) for _ in range(int(row[1]))]
        return made

    return [node(row) for row in rows]


def draws(key: int, sample: int, number: int, dataset: int) -> Callable[[], Words]:
    def every() -> Iterator[Words]:
        n = 0
        while True:
            stream = Stream(key, sample, number, dataset, 64 + n // 256 % 176)
            yield stream.at(n % 256)
            n += 1

    return every().__next__


def unit(bits: int) -> float:
    return uniform(bits, 0.0, 1.0)


def permutation(count: int, draw: Callable[[], Words]) -> list[int]:
    """Fisher and Yates, from the last place down."""
    order = list(range(count))
    for place in range(count - 1, 0, -1):
        other = below(draw()[0], place + 1)
        order[place], order[other] = order[other], order[place]
    return order


def normals(draw: Callable[[], Words]) -> tuple[float, float]:
    """Marsaglia's polar method, which makes two at once."""
    while True:
        u, v = (2 * unit(word) - 1 for word in draw())
        s = u * u + v * v
        if 0 < s < 1:
            by = math.sqrt(-2 * exact_log(s) / s)
            return u * by, v * by


def normal(draw: Callable[[], Words]) -> float:
    return normals(draw)[0]


def noise(key: int) -> Iterator[float]:
    """Standard normal values of an erasure, whose draws are the blocks of Philox one after another."""
    blocks = (philox(key, np.array([n, 0, 0, 0], np.uint32)).tolist() for n in count())
    words = ((a | b << 32, c | d << 32) for a, b, c, d in blocks)
    while True:
        yield from normals(words.__next__)


def gamma(shape: float, draw: Callable[[], Words]) -> float:
    """Marsaglia and Tsang's method."""
    boost = 1.0
    if shape < 1:
        boost = exact_exp(exact_log(1 - unit(draw()[0])) / shape)
        shape = shape + 1
    d = shape - 1.0 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal(draw)
        root = 1 + c * x
        if root > 0:
            v = root * root * root
            u = 1 - unit(draw()[0])
            if exact_log(u) < 0.5 * x * x + d - d * v + d * exact_log(v):
                return boost * d * v


def parameter(columns: Sequence[float], draw: Callable[[], Words]) -> float:
    distribution, low, high, x, y, signed, offset = columns
    t, sign = 0.0, 0
    if distribution == NORMAL:
        t = min(max(x + y * normal(draw), 0.0), 1.0)
        sign = draw()[1] if signed else 0
    elif distribution != FIXED or signed:
        first, sign = draw()
        if distribution == UNIFORM:
            t = unit(first)
        elif distribution == STEPS and x > 1:
            t = below(first, int(x)) / (x - 1)
    value = low + t * (high - low)
    return offset + (-value if signed and sign >> 63 else value)


def sin_cos(degrees: float) -> tuple[float, float]:
    """By series on [-45, 45] degrees."""
    quarter = round(degrees / 90)
    x = (degrees - quarter * 90) * 0.017453292519943295
    square = x * x
    sine = cosine = 1.0
    for n in range(20, 1, -2):
        sine = 1 - square / (n * (n + 1)) * sine
    for n in range(19, 0, -2):
        cosine = 1 - square / (n * (n + 1)) * cosine
    sine = x * sine
    return [(sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine)][quarter % 4]


def translation(value: float, unit_: int, size: int) -> float:
    rounded_share, whole_share, whole_pixels, share = range(1, 5)
    if unit_ in (rounded_share, whole_share, share):
        value = value * size
    if unit_ == rounded_share:
        return float(round(value))
    return float(np.trunc(value + math.copysign(1e-6, value))) if unit_ in (whole_share, whole_pixels) else value


def affine(p: Sequence[float], c: Sequence[float], width: int, height: int) -> list[float]:
    """Of translate, about the centre: turn, shear along y, shear along x, scale; its inverse, by rows."""
    x, y = translation(p[1], int(c[4]), width), translation(p[2], int(c[4]), height)
    center_x, center_y = (0.0, 0.0) if c[5] else (width * 0.5, height * 0.5)
    sin, cos = sin_cos(p[0])
    (sin_x, cos_x), (sin_y, cos_y) = sin_cos(p[4]), sin_cos(p[5])
    tan_x, tan_y = (p[4], p[5]) if c[6] else (sin_x / cos_x, sin_y / cos_y)
    a = cos + sin * tan_y
    b = -a * tan_x - sin
    c_ = sin - cos * tan_y
    d = -c_ * tan_x + cos
    m = [d / p[3], -b / p[3], -c_ / p[3], a / p[3]]
    move_x = m[0] * (-center_x - x) + m[1] * (-center_y - y) + center_x
    move_y = m[2] * (-center_x - x) + m[3] * (-center_y - y) + center_y
    return [m[0], m[1], move_x, m[2], m[3], move_y, 0.0, 0.0, 1.0]


def perspective(corners: Sequence[Words], distortion: float, width: int, height: int) -> list[float]:
    most_x, most_y = int(distortion * (width // 2)) + 1, int(distortion * (height // 2)) + 1
    right, bottom = width - 1.0, height - 1.0
    rows: list[list[float]] = []
    for (u, v), (first, second) in zip(
        [(0.0, 0.0), (right, 0.0), (right, bottom), (0.0, bottom)], corners, strict=True
    ):
        in_x, in_y = float(below(first, most_x)), float(below(second, most_y))
        x, y = in_x if u == 0 else right - in_x, in_y if v == 0 else bottom - in_y
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y, u])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y, v])
    for column in range(8):
        pivot = max(range(column, 8), key=lambda row: abs(rows[row][column]))
        if not abs(rows[pivot][column]) > 1e-12:
            return [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        rows[pivot], rows[column] = rows[column], rows[pivot]
        for row in range(8):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row][column:] = [
                    a - factor * b for a, b in zip(rows[row][column:], rows[column][column:], strict=True)
                ]
    return [rows[k][8] / rows[k][k] for k in range(8)] + [1.0]


@dataclass
class Drawer:
    """A chain as it grows."""

    draw: Callable[[], Words]
    width: int
    height: int
    chain: list[Drawn]

    def run(self, node: Node) -> None:
        if node.probability < 1 and not unit(self.draw()[0]) < node.probability:
            return
        if node.kind == SEQUENCE:
            self.run_all(node.children)
        elif node.kind == ORDER:
            self.run_all([node.children[place] for place in permutation(len(node.children), self.draw)])
        elif node.kind == CHOICE:
            left = list(node.children)
            for _ in range(int(node.constants[0])):
                child = self.chosen(left)
                if node.constants[1]:
                    left.remove(child)
                self.run(child)
        elif node.kind == AUGMIX:
            self.mix(node)
        else:
            self.add(node.kind, self.arguments(node, [parameter(each, self.draw) for each in node.parameters]))

    def run_all(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.run(node)

    def add(self, kind: int, arguments: Sequence[float] | None) -> None:
        if arguments is not None:
            self.chain.append((kind, [*map(float, arguments), *[0.0] * (ARGUMENTS - len(arguments))]))

    def chosen(self, nodes: Sequence[Node]) -> Node:
        total = 0.0
        for node in nodes:
            total += node.weight
        at, reached = unit(self.draw()[0]) * total, 0.0
        for node in nodes:
            reached += node.weight
            if at < reached:
                return node
        return nodes[-1]

    def mix(self, node: Node) -> None:
        width, depth, alpha = int(node.constants[0]), int(node.constants[1]), node.constants[2]
        a, b = gamma(alpha, self.draw), gamma(alpha, self.draw)
        weights = [gamma(alpha, self.draw) for _ in range(width)]
        total = 0.0
        for weight in weights:
            total += weight
        self.add(MIX_BEGIN, [])
        for weight in weights:
            self.add(MIX_BRANCH, [weight / total if total > 0 else 1 / width])
            for _ in range(depth if depth >= 0 else 1 + below(self.draw()[0], 3)):
                self.run(node.children[0])
        self.add(MIX_END, [a / (a + b) if a + b > 0 else 0.5])

    def arguments(self, node: Node, p: Sequence[float]) -> Sequence[float] | None:
        """None where the operation does nothing after all."""
        c = node.constants
        if node.kind == BLUR:
            return [p[0], c[0], c[1]]
        if node.kind == PERMUTE:
            return permutation(3, self.draw)
        if node.kind == ERASE:
            return self.erased(c)
        if node.kind == SOLARIZE:
            return [np.floor(p[0]) if c[0] else p[0]]
        if node.kind in (SOLARIZE_ADD, POSTERIZE):
            return [p[0], c[0]]
        if node.kind == AFFINE:
            return [*c[:4], *affine(p, c, self.width, self.height)]
        if node.kind == PERSPECTIVE:
            return [*c[:4], *perspective([self.draw() for _ in range(4)], c[4], self.width, self.height)]
        if node.kind == ELASTIC:
            return [*c[:4], *p[:4], *(word >> 32 for word in self.draw())]
        return p[:4]

    def erased(self, c: Sequence[float]) -> Sequence[float] | None:
        """left, top, width, height, the values and the noise's key."""
        for _ in range(10):
            shape, place = self.draw(), self.draw()
            area = float(self.width * self.height) * uniform(shape[0], c[0], c[1])
            ratio = exact_exp(uniform(shape[1], exact_log(c[2]), exact_log(c[3])))
            height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if height < self.height and width < self.width:
                top, left = below(place[0], self.height - height + 1), below(place[1], self.width - width + 1)
                key = [word >> 32 for word in self.draw()] if c[7] else [0, 0]
                values = c[4:7] if c[7] != 2 else list(islice(noise(key[0] << 32 | key[1]), 3))
                return [left, top, width, height, *values, c[7] == 1, *key]
        return None


def draw_chain(
    table: Sequence[Sequence[float]], *, key: int, sample: int, number: int, dataset: int, width: int, height: int
) -> list[Drawn]:
    """Operations in the order in which they run: kind and arguments (core/augment/draw.hpp)."""
    drawer = Drawer(draws(key, sample, number, dataset), width, height, [])
    drawer.run_all(forest(table))
    return drawer.chain
