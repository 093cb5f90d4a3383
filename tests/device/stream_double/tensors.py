"""Tensors of a device that is not there, and the mode that runs and records every operation on them.

The host's memory stands for the device's, so that values are real. FakeTensorMode is in force below, and spares torch
the start of a device's driver. Its own tensors cannot be sliced by a torch that is built without the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from stream_double.checker import DeviceBlock

if TYPE_CHECKING:
    from stream_double.device import SimulatedDevice


class DeviceTensor(Tensor):
    """Tensor on the simulated device; `block` is its memory, `content` the host's tensor that stands for it."""

    device_double: SimulatedDevice
    block: DeviceBlock
    content: Tensor

    @staticmethod
    def over(content: Tensor, block: DeviceBlock, owner: SimulatedDevice) -> DeviceTensor:
        layout = {"strides": content.stride(), "storage_offset": content.storage_offset(), "dtype": content.dtype}
        new = Tensor._make_wrapper_subclass(DeviceTensor, content.shape, **layout, device=owner.torch_device)
        new.device_double, new.block, new.content = owner, block, content
        return new

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Take the calls that torch's bindings would send to the device's own code."""
        own = _BOUND.get(func)
        if own is None:
            with torch._C.DisableTorchFunctionSubclass():  # torch's own would make host tensors this class
                return func(*args, **(kwargs or {}))
        first = next(each for each in tree_leaves(args) if isinstance(each, DeviceTensor))
        return own(Operations(first.device_double), *args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} is called in a thread that does not record")


class Recording(TorchDispatchMode):
    """Mode of each thread of a run."""

    def __init__(self, owner: SimulatedDevice) -> None:
        super().__init__()
        self._operations = Operations(owner)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._operations.run(func, args, kwargs or {})


SYNCHRONISING = {
    "_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero", "repeat_interleave", "_unique2",
    "unique_dim", "unique_consecutive",
}  # fmt: skip
"""Operations for which the host waits: for a value, or for a shape."""


INDEXING = {"index", "index_put", "index_put_"}


class Operations:
    """Operations of torch on host and device, by what they read and write."""

    def __init__(self, owner: SimulatedDevice) -> None:
        self._owner = owner

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one operation of the dispatcher."""
        name = func.overloadpacket.__name__
        target = kwargs.get("device")
        on_device = any(isinstance(each, DeviceTensor) for each in tree_leaves((args, kwargs)))
        to_device = target is not None and target.type == self._owner.torch_device.type
        if not on_device and not to_device:
            return self._on_host(name, func, args, kwargs)
        if name == "_to_copy":
            if not on_device:
                return self._upload(args[0], func, kwargs)
            if target is not None and not to_device:
                return self._download(args[0], func, kwargs)
        if name == "copy_":
            return self.copy(*args)
        if name == "is_pinned":
            return False
        changed = [tensor for tensor, writes in _tensors(func, args, kwargs) if writes]
        here = dict(kwargs) | ({"device": torch.device("cpu")} if to_device else {})
        waits = name in SYNCHRONISING or (name in INDEXING and _has_mask(args[1]))
        return self.launch(name, lambda: func(*_contents(args), **_contents(here)), (args, kwargs), changed, waits)

    def launch(
        self, name: str, call: Callable[[], Any], uses: Any, changed: Sequence[Tensor] = (), waits: bool = False
    ) -> Any:
        """Run a kernel on the current stream; a result in the memory of an argument is a view, and takes no kernel."""
        owner = self._owner
        used = [each for each in tree_leaves(uses) if isinstance(each, DeviceTensor)]
        with _disable_current_modes():
            out = call()
        results = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
        fresh = [each for each in results if not any(_shares(each, mine.content) for mine in used)]
        if results and not fresh and not changed:
            return tree_map(lambda each: self._wrapped(each, used), out)
        wrapped = tree_map(lambda each: self._wrapped(each, used), out)
        if not name.startswith(("empty", "new_empty")):
            reads = [each.block for each in used if not any(each is one for one in changed)]
            written = [each for each in (*changed, *tree_leaves(wrapped)) if isinstance(each, DeviceTensor)]
            writes = {id(each.block): each.block for each in written}.values()
            owner.checker.launch(owner.stream(), reads, writes, name)
        if waits:
            owner.checker.wait_on_host(owner.checker.clocks.of_stream(owner.stream()), name)
        return wrapped

    def get(self, tensor: Tensor, index: Any) -> Any:
        call = lambda: _contents(tensor)[_contents(index)]  # noqa: E731
        return self.launch("index", call, (tensor, index), waits=_has_mask(index))

    def set(self, tensor: Tensor, index: Any, value: Any) -> None:
        def call() -> None:
            _contents(tensor)[_contents(index)] = _contents(value)

        waits = _has_mask(index) and isinstance(value, Tensor) and value.ndim > 0
        self.launch("index_put_", call, (tensor, index, value), [tensor], waits)

    def dense(self, tensor: Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
        return (
            tensor if tensor.is_contiguous(memory_format=memory_format) else tensor.clone(memory_format=memory_format)
        )

    # --- host memory, and copies ---

    def _on_host(self, name: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        pinned = self._owner.pinned
        if name == "is_pinned":
            return pinned.block_of(args[0]) is not None
        for tensor, writes in _tensors(func, args, kwargs):
            block = pinned.block_of(tensor)
            if block is not None and writes:
                pinned.written(block)
        with _disable_current_modes():
            if name == "_pin_memory":
                return pinned.like(args[0])
            out = func(*args, **{key: value for key, value in kwargs.items() if key != "pin_memory"})
            if kwargs.get("pin_memory") and self._owner.kind == "mps":  # since torch 2.7: on the device, not pinned
                return self._wrapped(out, [])
            return pinned.like(out) if kwargs.get("pin_memory") else out

    def _upload(self, source: Tensor, func: Any, kwargs: Mapping[str, Any]) -> DeviceTensor:
        with _disable_current_modes():
            content = func(source, **(dict(kwargs) | {"device": torch.device("cpu")}))
        new = DeviceTensor.over(content, self._block(content), self._owner)
        self._sent(new, source, non_blocking=bool(kwargs.get("non_blocking")))
        return new

    def _sent(self, target: DeviceTensor, source: Tensor, *, non_blocking: bool) -> None:
        """Record a copy from the host. From memory that is not pinned, the host waits for the stream in any case."""
        owner = self._owner
        owner.schedule.point()
        if not source.numel():
            return
        moment = owner.checker.launch(owner.stream(), [], [target.block], "copy", is_copy=True)
        block = owner.pinned.block_of(source)
        if block is not None:
            owner.pinned.copied(block, source, moment, non_blocking=non_blocking)
        if block is None or not non_blocking:
            owner.checker.wait_on_host(owner.checker.clocks.of_stream(owner.stream()), "a copy that blocks")

    def _download(self, source: DeviceTensor, func: Any, kwargs: Mapping[str, Any]) -> Tensor:
        with _disable_current_modes():
            out: Tensor = func(source.content, **kwargs)
            arrives = self._owner.pinned.like(out) if kwargs.get("non_blocking") else None
        self._received(source, arrives)
        return out if arrives is None else arrives

    def _received(self, source: DeviceTensor, target: Tensor | None) -> None:
        """Record a copy to the host, into pinned memory or, without a target, one that the host waits for."""
        owner = self._owner
        owner.schedule.point()
        owner.checker.launch(owner.stream(), [source.block], [], "copy to the host")
        clock = owner.checker.clocks.of_stream(owner.stream())
        block = None if target is None else owner.pinned.block_of(target)
        if block is None:
            owner.checker.wait_on_host(clock, "a copy to the host")
        else:
            block.arriving = clock

    def copy(self, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        """Copy into a tensor, within the device or across."""
        if isinstance(target, DeviceTensor) and isinstance(source, DeviceTensor):
            call = lambda: target.content.copy_(source.content)  # noqa: E731
            copied: Tensor = self.launch("copy_", call, (target, source), [target])
            return copied
        with _disable_current_modes():
            _contents(target).copy_(_contents(source))
        if isinstance(target, DeviceTensor):
            self._sent(target, source, non_blocking=non_blocking)
        else:
            self._received(source, target if non_blocking else None)
        return target

    # --- memory ---

    def _block(self, content: Tensor) -> DeviceBlock:
        storage = content.untyped_storage()
        return DeviceBlock(self._owner.checker, self._owner.stream(), storage)

    def _wrapped(self, result: Any, used: Sequence[DeviceTensor]) -> Any:
        """Return a result as a tensor of the device: an argument itself, a view of one, or one in new memory."""
        if not isinstance(result, Tensor):
            return result
        for mine in used:
            if mine.content is result:
                return mine
        block = next((mine.block for mine in used if _shares(result, mine.content)), None)
        return DeviceTensor.over(result, self._block(result) if block is None else block, self._owner)


_BOUND: dict[Any, Callable[..., Any]] = {
    Tensor.__getitem__: Operations.get,
    Tensor.__setitem__: Operations.set,
    Tensor.copy_: Operations.copy,
    Tensor.contiguous: Operations.dense,
    Tensor.__float__: lambda operations, tensor: float(tensor.item()),
    Tensor.__int__: lambda operations, tensor: int(tensor.item()),
}


def _contents(parts: Any) -> Any:
    return tree_map(lambda each: each.content if isinstance(each, DeviceTensor) else each, parts)


def _shares(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def _has_mask(index: Any) -> bool:
    """Return True for an index by booleans, whose result has a shape that only the device knows."""
    return any(isinstance(each, DeviceTensor) and each.dtype == torch.bool for each in tree_leaves(index))


def _tensors(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Tensor, bool]]:
    """Yield an operation's tensors, and whether it writes each."""
    parameters = func._schema.arguments
    named = {parameter.name: parameter for parameter in parameters}
    pairs = [*zip(parameters, args, strict=False), *((named[key], value) for key, value in kwargs.items())]
    for parameter, value in pairs:
        writes = parameter.alias_info is not None and parameter.alias_info.is_write
        for each in tree_leaves(value):
            if isinstance(each, Tensor):
                yield each, writes
