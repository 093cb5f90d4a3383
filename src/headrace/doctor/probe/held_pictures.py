"""Pictures that a dataset holds in one array, such as those of CIFAR and MNIST."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from .column_sources import COMPOSED, LEAVES, members_of

MOST_BYTES = 1 << 30
_MOST_LEVELS = 3
_MOST_OBJECTS = 500


def held_pictures(dataset: Any, length: int) -> Any:
    """Return the pictures of all samples as one array of bytes [N, height, width] or [N, height, width, channels].

    None where the dataset holds no such array, or a larger one than 1 GB. Of a Subset, those that it takes.
    """
    numpy = sys.modules.get("numpy")
    inner, indices = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if numpy is None:
        return None
    if inner is not None and indices is not None and len(indices) == length:
        whole = held_pictures(inner, len(inner))
        return None if whole is None else whole[numpy.asarray(indices)]
    seen: set[int] = set()
    waiting: deque[tuple[Any, int]] = deque([(dataset, 0)])
    while waiting and len(seen) < _MOST_OBJECTS:
        thing, level = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        array = _as_pictures(thing, length, numpy)
        if array is not None:
            return array
        if level < _MOST_LEVELS:
            try:
                members = members_of(thing)
            except Exception:  # of a library's container, which cannot read its own elements
                continue
            waiting.extend(
                (one, level + 1)
                for label, one in members.items()
                if label != COMPOSED and not issubclass(type(one), LEAVES)
            )
    return None


def _as_pictures(thing: Any, length: int, numpy: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and type(thing) is torch.Tensor and thing.device.type == "cpu":
        thing = thing.detach().numpy()
    if not isinstance(thing, numpy.ndarray) or thing.dtype != numpy.uint8 or thing.ndim not in (3, 4):
        return None
    is_coloured = thing.ndim == 3 or thing.shape[3] in (1, 3)
    if thing.ndim == 4 and not is_coloured and thing.shape[1] in (1, 3):  # channels first, as STL10 and SVHN have it
        thing, is_coloured = thing.transpose(0, 2, 3, 1), True
    return thing if is_coloured and len(thing) == length and thing.nbytes <= MOST_BYTES else None
