"""Copies of a batch, so that a step may change the one that it is given."""

from __future__ import annotations

import copy
import sys
from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_MOST_DEPTH = 32

Memo = dict[int, Any]
"""Copies by the identity of what they were made of: what a batch holds twice, its copy does too."""


class Uncopyable(Exception):  # noqa: N818  (what a batch is, not what went wrong)
    """Its text is the type of what cannot be copied, and why not."""


def copied(batch: Any) -> Any:
    """A batch like `batch`, of the same types, that shares no tensor and no container with it. Pinned tensors stay
    pinned, and every tensor keeps its strides.

    Raises Uncopyable, also for a tensor that is not in the host's memory.
    """
    return _copied(batch, {}, _MOST_DEPTH)


def _copied(value: Any, memo: Memo, depth: int) -> Any:
    if type(value) in _PLAIN:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if not depth:
        raise Uncopyable(f"{type(value).__name__}: nested more than {_MOST_DEPTH} deep")
    try:
        memo[id(value)] = new = _new(value, memo, depth - 1)
    except Uncopyable:
        raise
    except Exception as error:
        raise Uncopyable(f"{type(value).__name__}: {type(error).__name__}: {error}") from error
    return new


def _new(value: Any, memo: Memo, depth: int) -> Any:
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(torch, value)
    if numpy is not None and type(value) is numpy.ndarray and value.dtype != object:
        return value.copy(order="K")
    if isinstance(value, dict):
        return _dict(value, memo, depth)
    if isinstance(value, tuple):
        return tuple.__new__(type(value), [_copied(inner, memo, depth) for inner in value])
    if isinstance(value, list):
        return _list(value, memo, depth)
    return _object(value, memo, depth)


def _tensor(torch: Any, tensor: Any) -> Any:
    if tensor.device.type != "cpu":  # its memory may be full, and nobody waits for the host there
        raise Uncopyable(f"{type(tensor).__name__}: on {tensor.device} already")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return _of_subclass(torch, tensor)
    with torch.no_grad():
        if tensor.layout is torch.strided and tensor.is_pinned():
            new = torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        else:
            new = tensor.detach().clone()
    return new.requires_grad_(tensor.requires_grad)


def _of_subclass(torch: Any, tensor: Any) -> Any:
    """It may know how to copy what it holds beside its data; torch's own way asks more of a subclass than most have."""
    if type(tensor).__deepcopy__ is not torch.Tensor.__deepcopy__:
        return copy.deepcopy(tensor)
    with torch.no_grad():
        new = tensor.detach().clone()
    return new if type(new) is type(tensor) else copy.deepcopy(tensor)


def _dict(value: dict[Any, Any], memo: Memo, depth: int) -> Any:
    """Its own kind of dict, with what that holds beside its items: a default's factory, attributes."""
    new = value.copy() if type(value) is dict else copy.copy(value)
    for key in dict.keys(value):
        dict.__setitem__(new, key, _copied(dict.__getitem__(value, key), memo, depth))
    _attributes(new, memo, depth)
    return new


def _list(value: list[Any], memo: Memo, depth: int) -> Any:
    new = value[:] if type(value) is list else copy.copy(value)
    for position, inner in enumerate(list.__iter__(value)):
        list.__setitem__(new, position, _copied(inner, memo, depth))
    _attributes(new, memo, depth)
    return new


def _object(value: Any, memo: Memo, depth: int) -> Any:
    """Of an object with attributes, a dataclass or a UserDict say, one with copies of them. Anything else copies
    itself."""
    if callable(value) or not hasattr(value, "__dict__"):
        return copy.deepcopy(value)
    new = copy.copy(value)
    if new is not value:
        _attributes(new, memo, depth)
    return new


def _attributes(new: Any, memo: Memo, depth: int) -> None:
    """Past `__setattr__`, which a frozen dataclass forbids."""
    try:
        attributes = object.__getattribute__(new, "__dict__")
    except AttributeError:
        return
    for name, inner in list(attributes.items()):
        attributes[name] = _copied(inner, memo, depth)
