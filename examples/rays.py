"""Where rays meet balls, cans, boxes, and a room from inside: all pixels at once, by numpy."""

from dataclasses import dataclass

import numpy as np

# The axes along which a shape is round, and those along which it is flat.
SHAPES = {"room": ([], [0, 1, 2]), "window": ([], [0, 1, 2]), "box": ([], [0, 1, 2])}
SHAPES |= {"ball": ([0, 1, 2], []), "can": ([0, 2], [1])}


@dataclass
class Thing:
    kind: str
    centre: np.ndarray  # metres; x to the right, y down, z away from the camera, which is at 0
    size: np.ndarray  # half of its extent along each of its axes
    turn: np.ndarray  # its axes, as columns
    colour: np.ndarray


def trace(things, start, rays):
    """How far along the rays the first thing is, which, and its normal there."""
    nearest = np.full(rays.shape[:-1], np.inf)
    index, normals = np.zeros(nearest.shape, int), np.zeros(rays.shape)
    for number, thing in enumerate(things):
        distance, normal = hit(thing, start, rays)
        closer = distance < nearest
        nearest[closer], index[closer], normals[closer] = distance[closer], number, normal[closer]
    return nearest, index, normals


@np.errstate(divide="ignore", invalid="ignore")
def hit(thing, start, rays):
    """How far along the rays the thing's surface is, infinite where they miss it, and its normal there."""
    rounded, flat = SHAPES[thing.kind]
    start, rays = (start - thing.centre) @ thing.turn / thing.size, rays @ thing.turn / thing.size
    near, far = np.full(rays.shape[:-1], -np.inf), np.full(rays.shape[:-1], np.inf)
    if rounded:
        a, b, c = ((one * two)[..., rounded].sum(-1) for one, two in ((rays, rays), (start, rays), (start, start)))
        root = np.sqrt(b * b - a * (c - 1))  # NaN where a ray misses
        near, far = (-b - root) / a, (-b + root) / a
    for axis in flat:
        ends = (-1 - start[..., axis]) / rays[..., axis], (1 - start[..., axis]) / rays[..., axis]
        near, far = np.maximum(near, np.minimum(*ends)), np.minimum(far, np.maximum(*ends))
    inside = thing.kind == "room"
    distance = np.where((near < far) & (far > 0), far if inside else near, np.inf)
    distance[distance <= 0] = np.inf
    point = start + np.where(np.isfinite(distance), distance, 0)[..., None] * rays
    on_face = np.abs(point[..., flat]) > 1 - 1e-6
    normal = np.zeros(rays.shape)
    normal[..., rounded] = point[..., rounded] * ~on_face.any(-1, keepdims=True)
    normal[..., flat] += np.sign(point[..., flat]) * on_face
    normal = (-1 if inside else 1) * (normal / thing.size) @ thing.turn.T
    return distance, normal / np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-9)
