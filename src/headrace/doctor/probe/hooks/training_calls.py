"""Hooks on the calls of a training step: backward, optimizers, GradScaler, collectives, engines, torch.compile.

No function of the probe is compiled. After a graph break, the compiler considers every function that Python calls,
including the probe's. Functions that traced code calls directly check `is_compiling()` first and then call the
original.
"""

from __future__ import annotations

import functools
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any, Callable

from ..evidence_file import LastRecords
from ..patches import Function, Patches
from ..stages import NOBODY
from ..training.steps import BACKWARD, CLOSURE, COLLECTIVE, OPTIMIZER
from ..training.training import TrainingObserver, now

COLLECTIVES = (
    *("all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"),
    *("all_gather", "all_gather_into_tensor", "all_gather_object", "gather", "gather_object"),
    *("all_to_all", "all_to_all_single", "scatter", "scatter_object_list"),
    *("broadcast", "broadcast_object_list", "barrier", "monitored_barrier"),
)
_PACKAGE = __name__.rpartition(".hooks.")[0]
_UNSEEN_STEPS = (
    "Backward passes ran, but no optimizer's step() was seen: it is part of a compiled function, or of an engine with "
    "an optimizer of its own. Each batch counts as a step."
)


def install_backward(patches: Patches, training: TrainingObserver, torch: ModuleType) -> None:
    """Hook torch.autograd.backward, which Tensor.backward calls."""
    is_compiling = compiling(torch)

    def hooked(original: Function) -> Function:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(tensors, *args, **kwargs)
            if not training.enter(BACKWARD, "b"):
                return original(tensors, *args, **kwargs)
            stamp = _stamped(training, torch.autograd, tensors) if training.closed.is_stamped else None
            try:
                return original(tensors, *args, **kwargs)
            finally:
                training.leave("c")
                if stamp is not None:
                    stamp.remove()

        return backward

    patches.hook(torch, "autograd.backward", hooked, "backward passes were")


def _stamped(training: TrainingObserver, autograd: ModuleType, tensors: Any) -> Any | None:
    """Hook the root of the graph to queue a callback for the moment when a rank's own gradients are done.

    Callbacks run in queue order. DistributedDataParallel queues the callback that waits for other ranks later, when its
    last bucket is full.
    """
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if getattr(compiled, "compiled_autograd_enabled", False):
        return None  # it traces hooks
    root = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors

    def queue(_: Any) -> None:
        autograd.Variable._execution_engine.queue_callback(training.gradients_ready)

    try:
        return root.register_hook(queue) if root.requires_grad else None
    except Exception as error:
        training.fail("backward", error)
        return None


def install_optimizers(patches: Patches, training: TrainingObserver, last: LastRecords, torch: ModuleType) -> None:
    """Register torch's hooks for every optimizer. A training step ends with the last optimizer."""
    last.add(training.finish)
    optimizer = sys.modules[torch.optim.Optimizer.__module__]
    thread, is_compiling = training.thread, compiling(torch)

    # A compiler that traces an optimizer's step also traces these hooks and must find nothing in them: a compiled step
    # runs without hooks.
    def begins(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        if thread.observed == NOBODY or is_compiling():
            return None
        try:
            return _with_closure(training, args, kwargs) if training.optimizer_begins(optimizer) else None
        except Exception as error:
            training.fail("optimizer", error)
            return None

    def ends(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_compiling():
            return
        try:
            if thread.is_here() and training.state.steps.is_within(OPTIMIZER):
                training.optimizer_ends(optimizer)
        except Exception as error:
            training.fail("optimizer", error)

    patches.at_restore(optimizer.register_optimizer_step_pre_hook(begins).remove)
    patches.at_restore(optimizer.register_optimizer_step_post_hook(ends).remove)


def _with_closure(training: TrainingObserver, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """Return the arguments with a closure excluded from the optimizer's own time; None if there is no closure."""
    closure: Any = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if not callable(closure):
        return None

    def outside() -> Any:
        is_counted = training.enter(CLOSURE)
        try:
            return closure()
        finally:
            if is_counted:
                training.leave()

    if "closure" in kwargs:
        return args, {**kwargs, "closure": outside}
    return (args[0], outside, *args[2:]), kwargs


def install_scaler(patches: Patches, training: TrainingObserver, grad_scaler: ModuleType) -> None:
    """Hook the GradScaler of any torch version. In a skipped step, it calls no optimizer."""
    its = grad_scaler.GradScaler
    if "_maybe_opt_step" not in vars(its) and hasattr(its, "_maybe_opt_step"):  # inherited from the hooked module
        return

    def step(original: Function, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        seen = training.state.steps_seen
        start = now()
        result = original(scaler, optimizer, *args, **kwargs)
        if training.state.steps_seen == seen and training.thread.is_here():
            try:
                training.skipped(optimizer, start)
            except Exception as error:
                training.fail("GradScaler.step", error)
        return result

    patches.hook_around(grad_scaler, "GradScaler._maybe_opt_step", step, "steps that it skips were")


def install_collectives(patches: Patches, training: TrainingObserver, torch: ModuleType) -> None:
    """Hook the torch.distributed collectives that the training thread waits for.

    The module that defines them is hooked as well; its own calls of them then nest in a counted call. FSDP and DDP call
    other functions, which do not wait.
    """
    distributed = torch.distributed
    if not distributed.is_available():
        return
    training.group.distributed = distributed
    is_compiling = compiling(torch)

    def make(original: Function) -> Function:
        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            is_inner = not training.thread.is_here() or training.state.steps.is_within(COLLECTIVE)
            if is_inner or kwargs.get("async_op") or not training.enter(COLLECTIVE):
                return original(*args, **kwargs)
            start = now()
            try:
                return original(*args, **kwargs)
            finally:
                training.leave()
                training.collective(original.__name__, start)

        return collective

    origin = sys.modules[getattr(distributed, "all_reduce", distributed.is_available).__module__]

    def hook(name: str) -> None:
        patches.replace(origin, name, make)
        hooked = getattr(origin, name)
        patches.replace(distributed, name, lambda _: hooked)

    known = [name for name in COLLECTIVES if hasattr(origin, name)]
    for name in known:
        hook(name)
    if not known:
        patches.unknown("torch.distributed.all_reduce", "waits for other ranks were")


# Ways to train with steps or devices that torch's own hooks do not show.


def install_data_parallel(patches: Patches, training: TrainingObserver, module: ModuleType) -> None:
    """Hook torch.nn.parallel.data_parallel: one thread per device, and a copy of the model to each in every step."""

    def new(original: Function, parallel: Any, *args: Any, **kwargs: Any) -> None:
        original(parallel, *args, **kwargs)
        devices = len(getattr(parallel, "device_ids", ()))
        if devices > 1:
            training.say("data-parallel", f"nn.DataParallel spreads each batch over {devices} devices.")

    patches.hook_around(module, "DataParallel.__init__", new, "how many devices share a batch was")


def install_end(training: TrainingObserver, _: ModuleType) -> None:
    """Report at the end why no steps were seen."""

    def say() -> None:
        if training.counter.passes and not training.state.steps_seen and training.backwards_seen:
            training.say("engine", _UNSEEN_STEPS)
        elif training.counter.passes and not training.state.steps_seen:
            training.say("no-optimizer", "No optimizer took a step: each batch counts as a step.")

    training.at_finish.append(say)


def install_compiler(eval_frame: ModuleType) -> None:
    """Make the compiler skip all code of the probe, once torch._dynamo.eval_frame is imported."""
    for name, module in sys.modules.copy().items():
        if name == _PACKAGE or name.startswith(_PACKAGE + "."):
            for value in list(vars(module).values()):
                _skip(eval_frame.skip_code, value, module.__name__)


def _skip(skip_code: Function, value: Any, module: str) -> None:
    """Skip the code of a function, property or class that the module defines."""
    value = getattr(value, "__func__", value)
    value = value.fget if isinstance(value, property) else value
    if getattr(value, "__module__", None) != module:
        return
    codes = [value.__code__] if isinstance(value, FunctionType) else []
    while codes:  # nested functions, too
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        skip_code(code)
    for member in list(vars(value).values()) if isinstance(value, type) else ():
        _skip(skip_code, member, module)


def compiling(torch: ModuleType) -> Callable[[], bool]:
    """Return `torch.compiler.is_compiling`, a constant to traces; before torch 2.1, assume that nothing compiles."""
    known: Callable[[], bool] | None = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return (lambda: False) if known is None else known
