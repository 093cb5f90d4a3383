"""Rooms with balls, boxes and cans in them, ray-cast: pictures whose depth, classes and normals are exact."""

from dataclasses import dataclass

import numpy as np
from rays import Thing, trace

CLASSES = ("room", "ball", "box", "can", "window")
IGNORE = 255  # on the edges of things, as in VOC's masks
COLOURS = ((112, 118, 128), (228, 87, 61), (58, 134, 196), (240, 180, 52), (170, 215, 235))  # of the classes


@dataclass
class Scene:
    rgb: np.ndarray  # uint8 [H, W, 3]
    depth: np.ndarray  # uint16 [H, W], millimetres along z; 0 where there is none (through the window)
    mask: np.ndarray  # uint8 [H, W], indices of CLASSES; IGNORE on edges
    normals: np.ndarray  # uint8 [H, W, 3]: -1…1 as 0…255; x to the right, y up, z to the camera


def draw(seed: int, height: int, width: int, only: str | None = None) -> Scene:
    """The same for the same arguments. `only` makes a single thing of that kind, near the camera."""
    rng = np.random.default_rng([seed, 2024])
    things = furnished(rng, only)
    lamp = np.array([rng.uniform(-1.2, 1.2), -1.0, rng.uniform(1.0, 2.5)])
    fine, _, _, _ = look(things, lamp, 2 * height, 2 * width)  # four rays a pixel, for smooth edges
    rgb = fine.reshape(height, 2, width, 2, 3).mean(axis=(1, 3)) + rng.normal(0, 0.008, (height, width, 3))
    _, depth, mask, normals = look(things, lamp, height, width)
    edge = np.zeros(mask.shape, bool)
    edge[:, 1:] |= mask[:, 1:] != mask[:, :-1]
    edge[1:] |= mask[1:] != mask[:-1]
    return Scene(
        (255 * np.clip(rgb, 0, 1) ** (1 / 2.2)).astype(np.uint8),
        np.rint(1000 * depth).astype(np.uint16),
        np.where(edge, IGNORE, mask).astype(np.uint8),
        np.rint(127.5 + 127.5 * normals * [1, -1, -1]).astype(np.uint8),
    )


def furnished(rng, only):
    room = np.array([rng.uniform(1.8, 2.8), 1.35, rng.uniform(2.5, 3.5)])
    middle = np.array([rng.uniform(-0.6, 0.6), rng.uniform(-0.2, 0.1), room[2] - 0.5])
    pastel = rng.uniform(0.55, 0.8, 3)
    things = [Thing("room", middle, room, np.eye(3), pastel)]
    window = middle + np.array([rng.uniform(-0.6, 0.6), -0.35, room[2]])
    things.append(Thing("window", window, np.array([rng.uniform(0.4, 0.9), 0.5, 0.01]), np.eye(3), pastel))
    floor = middle[1] + room[1]
    count = 1 if only else rng.integers(4, 8)
    for place in (rng.permutation(count) + 0.5) / count:  # beside each other
        kind = only or CLASSES[rng.integers(1, 4)]
        z = rng.uniform(1.8, 2.6) if only else rng.uniform(1.8, 2 * room[2] - 1.2)
        size = rng.uniform(0.22, 0.48) * np.array([1, 1 if kind == "ball" else rng.uniform(0.6, 1.7), 1])
        y = rng.uniform(-0.1, 0.3) if only else floor - size[1]
        centre = np.array([(place - 0.5) * z + middle[0] * 0.3, y, z])
        colour = rng.permutation([rng.uniform(0.6, 0.95), rng.uniform(0.1, 0.5), rng.uniform(0.05, 0.3)])
        things.append(Thing(kind, centre, size, turned(rng.uniform(0, 1.5)), colour))
    return things


def turned(angle):
    """Around the vertical axis."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def look(things, lamp, height, width):
    """Colour, depth, class and normal of each pixel. Rays have z = 1, so that a ray's length is the depth."""
    y, x = np.mgrid[0.5:height, 0.5:width]
    focal = 0.62 * (height + width)
    rays = np.stack([(x - width / 2) / focal * 1.4, (y - height / 2) / focal * 1.4, np.ones((height, width))], axis=-1)
    depth, index, normals = trace(things, np.zeros(3), rays)
    points = rays * depth[..., None]
    to_lamp = lamp - points
    distance = np.linalg.norm(to_lamp, axis=-1)
    shade = np.clip((normals * to_lamp).sum(-1) / distance, 0, 1) * 5 / (2 + distance**2)
    blocked, _, _ = trace(things[2:], points + normals * 1e-3, to_lamp)
    colours = np.array([thing.colour for thing in things])[index]
    board = (np.floor(points[..., 0] * 2) + np.floor(points[..., 2] * 2)) % 2 * 0.35 + 0.65
    colours = np.where(((index == 0) & (normals[..., 1] < -0.5))[..., None], colours * board[..., None], colours)
    rgb = colours * (0.18 + np.where(blocked < 1, 0.12, 1) * shade)[..., None]
    kinds = np.array([CLASSES.index(thing.kind) for thing in things])[index]
    sky = kinds == CLASSES.index("window")
    rgb[sky] = np.stack([0.45 - 0.2 * y / height, 0.68 - 0.1 * y / height, 0.95 + 0 * y], axis=-1)[sky]
    return rgb, np.where(sky, 0, depth), kinds, normals
