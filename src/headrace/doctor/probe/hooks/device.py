"""Copies of a tensor from the host to a device, by `Tensor.to` and `Tensor.cuda`."""

from __future__ import annotations

from threading import get_ident
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..overhead import nothing, price_ns
from ..training.steps import COPY

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training.training import Training


def install(probe: Probe, torch: ModuleType) -> None:
    """Hooks torch.Tensor. Done once a device is in use, since these are the hottest calls of all that are hooked."""
    training = probe.training
    probe.patches.replace(torch.Tensor, "to", lambda original: Method(original, _to(training, torch, original)))
    probe.patches.replace(torch.Tensor, "cuda", lambda original: Method(original, _cuda(training, torch, original)))
    training.costs.price_conversion = lambda: _price_ns(training, torch)


class Method:
    """Stands for a method of Tensor, and is equal to it: torch and libraries over it keep tables of such methods, in
    which they look up the one that a subclass's `__torch_function__` is given."""

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        self._original = original
        self._call = call

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self if tensor is None else MethodType(self._call, tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _to(training: Training, torch: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    tensor_type = torch.Tensor

    def to(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != training.thread:
            return original(tensor, *args, **kwargs)
        training.costs.conversions += 1
        # Not a subclass: to ask one where it is may run code of the user's. It is no batch that default_collate made.
        if type(tensor) is not tensor_type or not tensor.is_cpu or not _leaves_host(torch, args, kwargs):
            return original(tensor, *args, **kwargs)
        return _copied(training, original, tensor, args, kwargs)

    return to


def _cuda(training: Training, torch: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    tensor_type = torch.Tensor

    def cuda(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != training.thread:
            return original(tensor, *args, **kwargs)
        training.costs.conversions += 1
        if type(tensor) is not tensor_type or not tensor.is_cpu:
            return original(tensor, *args, **kwargs)
        return _copied(training, original, tensor, args, kwargs)

    return cuda


def _copied(training: Training, original: Callable[..., Any], tensor: Any, args: Any, kwargs: Any) -> Any:
    begin, end = ("h", "i") if training.may_mark_copy() else ("", "")
    if not training.enter(COPY, begin):
        return original(tensor, *args, **kwargs)
    try:
        return original(tensor, *args, **kwargs)
    finally:
        training.leave(end)


def _leaves_host(torch: ModuleType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether arguments of `Tensor.to` name a device other than the CPU: a device, its name or index, or a tensor."""
    target = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if target is None or isinstance(target, torch.dtype):
        return False
    if isinstance(target, str):
        return not target.startswith("cpu")
    if isinstance(target, torch.device):
        return bool(target.type != "cpu")
    return isinstance(target, int) or not getattr(target, "is_cpu", True)


def _price_ns(training: Training, torch: ModuleType) -> float:
    """Of a call that copies nothing, which most are."""
    scratch = training.scratch()
    tensor = torch.empty(0)
    bound = MethodType(_to(scratch, torch, nothing), tensor)
    return price_ns(lambda: bound(torch.float32))
