"""Images that a dataset holds in one array, such as CIFAR and MNIST."""

from __future__ import annotations

import sys
from typing import Any

from .column_sources import COMPOSED, LEAVES, members_of, reached

MOST_BYTES = 1 << 30
_MOST_LEVELS = 3
_MOST_OBJECTS = 500


def held_pictures(dataset: Any, length: int) -> Any:
    """Return the images of all samples as one uint8 array [N, height, width] or [N, height, width, channels].

    Return None if the dataset holds no such array, or one above 1 GB. For a Subset, return only its own images.
    """
    numpy = sys.modules.get("numpy")
    inner, indices = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if numpy is None:
        return None
    if inner is not None and indices is not None and len(indices) == length:
        whole = held_pictures(inner, len(inner))
        return None if whole is None else whole[numpy.asarray(indices)]
    found = reached(
        [(dataset, 0)],
        lambda thing: _as_pictures(thing, length, numpy) is not None,
        _MOST_LEVELS,
        _MOST_OBJECTS,
        _inner,
    )
    return next((_as_pictures(thing, length, numpy) for thing in found), None)


def _inner(thing: Any) -> list[Any]:
    members = members_of(thing).items()
    return [one for label, one in members if label != COMPOSED and not issubclass(type(one), LEAVES)]


def _as_pictures(thing: Any, length: int, numpy: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and type(thing) is torch.Tensor and thing.device.type == "cpu":
        thing = thing.detach().numpy()
    if not isinstance(thing, numpy.ndarray) or thing.dtype != numpy.uint8 or thing.ndim not in (3, 4):
        return None
    is_coloured = thing.ndim == 3 or thing.shape[3] in (1, 3)
    if thing.ndim == 4 and not is_coloured and thing.shape[1] in (1, 3):  # channels first, as in STL10 and SVHN
        thing, is_coloured = thing.transpose(0, 2, 3, 1), True
    return thing if is_coloured and len(thing) == length and thing.nbytes <= MOST_BYTES else None
