"""Methods that an object has only if its source has ones of the same names, so that whoever asks is told the truth.

Frameworks ask before they save a run, and a method that is there and then raises would end it. They ask in two ways:
`hasattr(loader, "state_dict")`, and isinstance with a runtime protocol, as Lightning does, which looks at the class and
never calls a descriptor. So the methods have to be there or not in the class itself.
"""

from __future__ import annotations


def take_on(owner: object, source: object, names: tuple[str, ...]) -> None:
    """Gives `owner` its own `_NAME` as NAME, for each of these names that `source` has."""
    owner.__class__ = _having(type(owner), tuple(name for name in names if hasattr(source, name)))


def plain_class(owner: object) -> type[object]:
    """The class that `owner` had before: the other cannot be found by its name, as pickle would."""
    return type(owner).__bases__[0]


_classes: dict[tuple[type[object], tuple[str, ...]], type[object]] = {}


def _having(cls: type[object], names: tuple[str, ...]) -> type[object]:
    if (cls, names) not in _classes:
        kept = {name: getattr(cls, name) for name in ("__doc__", "__module__", "__qualname__")}
        _classes[cls, names] = type(cls.__name__, (cls,), kept | {name: getattr(cls, f"_{name}") for name in names})
    return _classes[cls, names]
