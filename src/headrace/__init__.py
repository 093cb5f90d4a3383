"""Headrace keeps GPUs fed in PyTorch training."""

from importlib import import_module as _import_module

from headrace import errors as errors

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """Return the public names and the module of each, from the lines `from MODULE import NAME as NAME` of the stub."""
    with open(f"{__file__}i", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from ")]
    return {line[3]: line[1] for line in lines}


_HOMES = _homes()
__all__ = sorted(_HOMES.keys() - {"errors"})
_PACKAGES = ("data", "dropins", "fields")
"""Packages that are attributes without an import of their own, but not public names."""


def __getattr__(name: str) -> object:
    """Import a name's module when the name is used: a loader's two hundred modules take 150 ms.

    The name is not stored here, since the doctor replaces some names in the modules that define them.
    """
    home = _HOMES.get(name, "headrace" if name in _PACKAGES else None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == "headrace":
        return _import_module(f"headrace.{name}")
    return getattr(_import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__", "errors"])
