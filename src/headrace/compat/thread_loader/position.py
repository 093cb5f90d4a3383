"""Where a ThreadDataLoader stands, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any

from headrace.errors import StateError

POSITION_VERSION = 1
"""Of the dict. Raise it when a key comes, goes or changes its meaning."""


@dataclass(frozen=True)
class LoaderPosition:
    """What the consumer has received, and all that the rest of the epoch follows from.

    `epoch` is the loader's count, and `sampler_epoch` what its sampler's `epoch` was, if it has one: a sampler need not
    be told of a new epoch. `batches` counts those of this epoch. `base_seed` and `order_seed` were drawn when the epoch
    began, None before: the one for random sources, the other for the order of a RandomSampler without a generator.
    `seeded_epochs` counts the epochs before this one with the same `base_seed`. `generators` are the states of the
    loader's and the sampler's generators at the epoch's start, base64. `indices_crc` sums up the indices received, and
    `sampler` is the state of a sampler that keeps its own.
    """

    _: KW_ONLY
    epoch: int = 0
    sampler_epoch: int | None = None
    batches: int = 0
    base_seed: int | None = None
    seeded_epochs: int = 0
    order_seed: int | None = None
    generators: list[str] = field(default_factory=list)
    indices_crc: int = 0
    sampler: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"version": POSITION_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LoaderPosition:
        """What `to_dict` gave. Raises StateError for anything else.

        Keys that begin with an underscore are marks of a wrapper, such as Accelerate's `_iterator_finished`.
        """
        if not isinstance(data, Mapping):
            raise StateError(f"state: expected the dict that state_dict() gave, got {type(data).__name__}")
        if data.get("version") != POSITION_VERSION:
            raise StateError(
                f"state: expected version {POSITION_VERSION} of a ThreadDataLoader's state, got "
                f"{data.get('version')!r}; resume with the Headrace that saved it, or start the epoch afresh"
            )
        values = {name: value for name, value in data.items() if name != "version" and not name.startswith("_")}
        if values.keys() != _KINDS.keys():
            raise StateError(
                f"state: expected the keys {sorted(_KINDS)}, got {sorted(values)}; pass the saved dict unchanged"
            )
        for name, value in values.items():
            _check(name, value)
        return cls(**values)


_KINDS: dict[str, tuple[type, ...]] = {
    "epoch": (int,),
    "sampler_epoch": (int, type(None)),
    "batches": (int,),
    "base_seed": (int, type(None)),
    "seeded_epochs": (int,),
    "order_seed": (int, type(None)),
    "generators": (list,),
    "indices_crc": (int,),
    "sampler": (dict, type(None)),
}


def _check(name: str, value: object) -> None:
    kinds = _KINDS[name]
    texts = isinstance(value, list) and all(type(item) is str for item in value)
    if type(value) in kinds and (type(value) is not int or value >= 0) and (type(value) is not list or texts):
        return
    expected = {int: "an int, 0 or more", list: "a list of str", dict: "a dict"}[kinds[0]]
    got = f"{expected} or None" if type(None) in kinds else expected
    raise StateError(f"state[{name!r}]: expected {got}, got {value!r}; pass the saved dict unchanged")
