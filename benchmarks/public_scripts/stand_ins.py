"""What a training script needs to reach its first batch on a machine without CUDA, a network and old libraries.

Nothing of a script changes. It finds what it calls: a device, weights, a process group, and names that libraries have
removed since it was written.

    python stand_ins.py LAUNCHED SCRIPT [ARGUMENTS]

runs it. LAUNCHED is "launched" for a script that a launcher starts, else "alone"; with "+gradients" its weights get
gradients, which take the time of a step on the CPU.
"""

import collections
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
import struct
import sys
import threading
import time
import types
import urllib.request
from pathlib import Path
from unittest.mock import MagicMock

REMOVED = {
    "PIL.Image": {"ANTIALIAS": "LANCZOS", "CUBIC": "BICUBIC", "LINEAR": "BILINEAR"},
    "numpy": {
        "float": "float64",
        "int": "int64",
        "bool": "bool_",
        "object": "object_",
        "str": "str_",
        "asfarray": "asarray",
    },
    "torch.nn.utils": {"clip_grad_norm": "clip_grad_norm_"},
    "torchvision.transforms": {"Scale": "Resize"},
    "torchvision.transforms.transforms": {"Scale": "Resize"},
}
"""Names by module, each with the one that took its place."""
UNUSED = ("apex", "mmcv", "visdom")
"""What scripts import for pictures and shells, or to train faster, and do not call before their first batch."""
STOPWATCH = "PUBLIC_SCRIPTS_STOPWATCH"
"""Environment variable with the file that `time_loaders` writes."""

ONLY_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29519",
}


def install(*, is_launched: bool) -> None:
    """Put everything in place, for the rest of this process; `is_launched`: as a launcher's only rank."""
    os.environ.update(WANDB_MODE="offline", HF_HUB_OFFLINE="1", PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    os.environ.update(ONLY_RANK if is_launched else {})
    sys.meta_path.insert(0, BesideTheScript())
    sys.meta_path.append(Unused())
    do_without_weights()
    be_the_only_rank()
    put_cuda_away()
    restore_removed_names()


class BesideTheScript(importlib.abc.MetaPathFinder):
    """Finds a folder of modules beside the script before an installed package of that name."""

    def find_spec(self, name, path=None, target=None):
        if "." not in name and any(Path(name).glob("*.py")) and not Path(name, "__init__.py").exists():
            return importlib.machinery.PathFinder.find_spec(name, [os.getcwd()])
        return None


class Unused(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that are not installed, and that nothing is asked of."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in UNUSED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return MagicMock(name=spec.name, __path__=[], __spec__=spec, __version__="2.0.0")

    def exec_module(self, module) -> None:
        if module.__name__ == "apex.parallel.LARC":
            module.LARC = _own_optimizer


def _own_optimizer(optimizer, *args, **kwargs):
    """Return the optimizer that was to be wrapped, which also knows itself by the wrapper's name for it."""
    optimizer.optim = optimizer
    return optimizer


def restore_removed_names() -> None:
    for name, changed in REMOVED.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for old, new in changed.items():
            if old not in vars(module):
                setattr(module, old, getattr(module, new))
    import numpy
    import torch

    element = torch.Tensor.__getitem__
    torch.Tensor.__getitem__ = lambda self, at: self if not self.ndim and type(at) is int else element(self, at)
    torch.rfft = lambda given, *args, **kwargs: torch.view_as_real(torch.fft.fft2(given))
    to_array = torch.Tensor.__array__
    torch.Tensor.__array__ = lambda self, *args, **kwargs: to_array(self.detach(), *args, **kwargs)
    if not hasattr(numpy, "sctypes"):
        kinds = {"int": "bhil", "uint": "BHIL", "float": "efd", "complex": "FD"}
        numpy.sctypes = {kind: [numpy.dtype(each).type for each in codes] for kind, codes in kinds.items()}
    if not hasattr(numpy, "RankWarning"):
        numpy.RankWarning = numpy.exceptions.RankWarning


def put_cuda_away() -> None:
    """Let calls for a CUDA device succeed, on the CPU."""
    import torch

    def on_cpu(original):
        def moved(self, *args, **kwargs):
            kept = [each for each in args if not _is_cuda(each)]
            named = {name: each for name, each in kwargs.items() if name != "non_blocking" and not _is_cuda(each)}
            return original(self, *kept, **named) if kept or named else self

        return moved

    for owner in (torch.Tensor, torch.nn.Module):
        owner.to = on_cpu(owner.to)
        owner.cuda = lambda self, *args, **kwargs: self
    for name in ("tensor", "as_tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn", "randint", "eye"):
        setattr(torch, name, _on_no_device(getattr(torch, name)))
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_name = lambda *args: "none"
    for name in ("set_device", "manual_seed", "manual_seed_all", "synchronize", "empty_cache", "init"):
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    for name in ("max_memory_allocated", "memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(torch.cuda, name, lambda *args, **kwargs: 0)
    torch.cuda.is_current_stream_capturing = torch.accelerator.is_available = lambda: False
    torch.cuda._lazy_init = torch.accelerator.current_accelerator = lambda *args, **kwargs: None
    torch.cuda.Stream = MagicMock  # a class, which annotations name
    torch.cuda.current_stream = lambda *args, **kwargs: MagicMock()
    torch.cuda.stream = lambda *args: contextlib.nullcontext()
    torch.cuda.FloatTensor, torch.cuda.LongTensor = torch.FloatTensor, torch.LongTensor
    torch.Tensor.pin_memory = lambda self, *args: self
    torch.utils.data._utils.pin_memory.pin_memory = lambda data, *args: data
    _without_scaling(torch.amp)
    _without_scaling(torch.cuda.amp)
    torch.nn.DataParallel = torch.nn.parallel.DataParallel = _wrapper()


def _on_no_device(original):
    def made(*args, device=None, **kwargs):
        return (
            original(*args, **kwargs)
            if device is None or _is_cuda(device)
            else original(*args, device=device, **kwargs)
        )

    return made


def _without_scaling(amp) -> None:
    """Let a scaler of gradients leave them as they are."""
    scaler = amp.GradScaler
    amp.GradScaler = lambda *args, **kwargs: scaler(enabled=False)


def _is_cuda(value) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or str(value).startswith("cuda")


def _wrapper() -> type:
    """Return a class that has a module as DataParallel has it."""
    import torch

    class Wrapper(torch.nn.Module):
        def __init__(self, module, *args, **kwargs) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

    return Wrapper


def be_a_fast_device(*, gives_gradients: bool) -> None:
    """Let layers give one number for all of their shape, made of what they are given, and the next layers.

    Unless it `gives_gradients`, weights have none, so that neither backward passes nor optimizers take time that a
    device would not.
    """
    import torch

    if not gives_gradients:
        torch.nn.Parameter.mean = lambda self: _one(self.detach()).requires_grad_(self.requires_grad)
    functional = torch.nn.functional
    for name in ("conv1d", "conv2d", "conv3d", "conv_transpose2d", "linear"):
        setattr(functional, name, _of_shape(getattr(functional, name)))
    for owner, name in ((torch, "matmul"), (torch, "bmm"), (torch.Tensor, "matmul"), (torch.Tensor, "__matmul__")):
        setattr(owner, name, _product(getattr(owner, name)))
    for name in ("interpolate", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "gelu", "softmax"):
        setattr(functional, name, _of_one_number(getattr(functional, name)))
    torch.Tensor.softmax = _of_one_number(torch.Tensor.softmax)
    functional.scaled_dot_product_attention = lambda query, key, value, *args, **kwargs: (
        query.mean() + key.mean() + value.mean()
    ).expand(*query.shape[:-1], value.shape[-1])
    functional.batch_norm = lambda input, mean, variance, weight=None, bias=None, *args, **kwargs: (
        input if weight is None else _shifted(input, weight.mean() + bias.mean())
    )
    functional.layer_norm = lambda input, shape, weight=None, bias=None, *args, **kwargs: (
        input if weight is None else _shifted(input, weight.mean() + bias.mean())
    )
    for name in ("relu", "leaky_relu", "hardtanh", "relu6", "silu", "elu", "dropout"):
        setattr(functional, name, lambda input, *args, **kwargs: input)
    torch.Tensor.__iadd__ = lambda self, other: self + other  # one number has no places to be written to


def _of_shape(original):
    """Let a layer's function give one number. One of data, whose weights are no parameters, computes as ever."""
    import torch

    def computed(input, weight, bias=None, *args, **kwargs):
        if not isinstance(weight, torch.nn.Parameter):
            return original(input, weight, bias, *args, **kwargs)
        added = 0 if bias is None else bias.mean()
        shape = _shape_of(original, input, weight, bias, *args, **kwargs)
        return ((_one(input) if _is_one(input) else input.mean()) * weight.mean() + added).expand(shape)

    return computed


def _product(original):
    def computed(one, other):
        if not (_is_one(one) or _is_one(other) or one.requires_grad or other.requires_grad):
            return original(one, other)
        made = (one.mean() * other.mean()).expand(_shape_of(original, one, other))
        return made.clone() if made.ndim == 2 else made  # a loss may change its matrix in place

    return computed


def _of_one_number(original):
    """Let a function of one number, which has a shape, give the number in the shape that it makes of it."""

    def computed(input, *args, **kwargs):
        if not _is_one(input):
            return original(input, *args, **kwargs)
        return _one(input).expand(_shape_of(original, input, *args, **kwargs))

    return computed


def _shape_of(original, *args, **kwargs):
    import torch

    given = [torch.empty(each.shape, device="meta") if isinstance(each, torch.Tensor) else each for each in args]
    return original(*given, **kwargs).shape


def _shifted(values, by):
    return (_one(values) + by).expand(values.shape) if _is_one(values) else values + by


def _is_one(values) -> bool:
    return values.ndim > 0 and not any(values.stride())


def _one(values):
    return values[(0,) * values.ndim]


def do_without_weights() -> None:
    """Leave all weights as they were drawn."""
    import torch
    import torch.utils.model_zoo

    torch.hub.list = lambda *args, **kwargs: []
    torch.hub.load_state_dict_from_url = lambda *args, **kwargs: {}
    torch.utils.model_zoo.load_url = lambda *args, **kwargs: {}
    urllib.request.urlretrieve = lambda url, file, *args, **kwargs: torch.save({}, file)
    import torchvision

    torchvision.models.resnet.model_urls = collections.defaultdict(str)
    sys.modules["torchvision.models.utils"] = types.SimpleNamespace(
        load_state_dict_from_url=torch.hub.load_state_dict_from_url
    )
    torch.nn.Module.load_state_dict = lambda self, *args, **kwargs: ([], [])
    original = torch.load

    def load(file, *args, **kwargs):
        try:
            return original(file, *args, **kwargs)
        except FileNotFoundError:
            return {}

    torch.load = load


def be_the_only_rank() -> None:
    """Let a process group be one of this process alone, and let processes that are started be this one."""
    import torch

    initialise = torch.distributed.init_process_group

    def begin(*args, **kwargs):
        if not torch.distributed.is_initialized():
            initialise("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)

    def spawn(function, args=(), nprocs=1, **kwargs):
        function(0, *args)

    torch.nn.SyncBatchNorm.convert_sync_batchnorm = lambda module, *args: module
    torch.distributed.init_process_group = begin
    torch.multiprocessing.spawn = spawn
    torch.nn.parallel.DistributedDataParallel = _wrapper()


def time_loaders(file: str) -> None:
    """Write to a file when the main thread enters and leaves `iter()` and `next()` of DataLoaders.

    Times are pairs of int64, in nanoseconds of `time.monotonic_ns()`.
    """
    from torch.utils.data import DataLoader, dataloader

    times, process = open(file, "wb", buffering=0), os.getpid()  # noqa: SIM115 (open until the process ends)

    def timed(original):
        def call(self):
            begun = time.monotonic_ns()
            try:
                return original(self)
            finally:
                if os.getpid() == process and threading.current_thread() is threading.main_thread():
                    times.write(struct.pack("qq", begun, time.monotonic_ns()))

        return call

    DataLoader.__iter__ = timed(DataLoader.__iter__)
    dataloader._BaseDataLoaderIter.__next__ = timed(dataloader._BaseDataLoaderIter.__next__)


def main() -> None:
    launched, *script = sys.argv[1:]
    sys.path.pop(0)  # names of ours would hide the script's
    install(is_launched="launched" in launched)
    if STOPWATCH in os.environ:
        time_loaders(os.environ[STOPWATCH])
    be_a_fast_device(gives_gradients="gradients" in launched)
    sys.argv = script[1:] if script[0] == "-m" else script
    sys.path.insert(0, os.getcwd())
    if script[0] == "-m":
        runpy.run_module(script[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(script[0]).resolve().parent)
        runpy.run_path(script[0], run_name="__main__")


if __name__ == "__main__":
    main()
