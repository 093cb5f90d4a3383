"""Batches that come from no DataLoader: what the loop waits for at whatever it calls for one.

Iterators of libraries that are known are hooked as these are imported. Where steps are taken and no batch was received,
the loop's own source shows what it calls for one, and that is hooked from then on. What cannot be hooked, such as a
generator that runs already, is named in a note, and its wait is nobody's part of a step.

The search begins at the statement in which the backward pass was begun, and follows names back through the assignments
of the loop around it. A call that none of the loop's own values go into, and that is neither torch's nor a model's, is
where a batch comes from: `get_batch("train")`, `next(iterator)`, `self.data.next_batch()`, or what a `for` goes
through. None of the user's code is run: names are looked up, attributes without descriptors.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import sys
from threading import get_ident
from types import FrameType, FunctionType, GeneratorType, ModuleType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ..stack_sampler import call_site, is_users
from ..training.step_records import FetchedBatch
from .batch_shapes import BatchShapes

if TYPE_CHECKING:
    from ..patches import Fault, Patches
    from ..training.training import TrainingObserver

SOURCE_LIBRARIES: dict[str, tuple[str, ...]] = {
    "nvidia.dali.plugin.pytorch": ("DALIGenericIterator.__next__", "DALIRaggedIterator.__next__"),
    "spdl.pipeline._pipeline": ("PipelineIterator.__next__", "Pipeline.get_item"),
    "spdl.dataloader._dataloader": ("DataLoader.__iter__",),
    "spdl.dataloader._pytorch_dataloader": ("PyTorchDataLoader.__iter__",),
    "tensorflow.python.data.ops.iterator_ops": ("OwnedIterator.__next__",),
    "tensorflow.python.data.ops.dataset_ops": ("NumpyIterator.__next__",),
    "webdataset.pipeline": ("DataPipeline.__iter__",),
    "ffcv.loader.epoch_iterator": ("EpochIterator.__next__",),
    "torchdata.nodes.loader": ("LoaderIterator.__next__",),
}
"""What gives batches, by the module that defines it: a method that gives one, or an `__iter__`."""
MOST_LOOKS = 5
"""Backward passes at which the loop's source is looked at: some begin before the first batch of their own."""
MOST_FRAMES = 8
UNSEEN = "not-seen"
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOT_SOURCES = ("torch", "builtins", "math", "time", "tqdm")
"""Packages whose functions give no batches."""
_THROUGH = ("enumerate", "zip", "iter", "tqdm", "islice", "cycle", "chain", "list")
"""Functions that only go through what they are given."""
_NOTHING: Any = object()


def install_search(patches: Patches, training: TrainingObserver, fault: Fault, torch: ModuleType) -> None:
    """Look for sources while none is known."""
    training.seek = _Search(patches, training, fault).look


def install_source_library(patches: Patches, training: TrainingObserver, module: ModuleType) -> None:
    """Hook one of SOURCE_LIBRARIES. Those of another version may lack a name: the loop's source says the rest."""
    for path in SOURCE_LIBRARIES[module.__name__]:
        kind, _, method = path.partition(".")
        owner = getattr(module, kind, None)
        if isinstance(owner, type):
            name = f"{module.__name__.partition('.')[0]}.{kind}"
            patches.around(owner, method, _Calls(training, name, None, None).call)


class _Search:
    """Search in the training thread whenever a backward pass begins, until it is taken away."""

    def __init__(self, patches: Patches, training: TrainingObserver, fault: Fault) -> None:
        self._patches = patches
        self._training = training
        self._fault = fault
        self._looks = 0

    def look(self) -> None:
        training = self._training
        self._looks += 1
        if training.counter.passes or training.elsewhere.threads or self._looks > MOST_LOOKS:
            training.seek = None
            return
        try:
            found = self._found()
        except Exception as error:
            training.seek = None
            self._fault("search for what gives batches", error)
            return
        if found:
            training.seek = None
        for source in found:
            self._hook(source)

    def _found(self) -> list[BatchSource]:
        """Return those of the innermost loop that has any.

        What a function calls outside of a loop counts where a loop calls it.
        """
        frame: FrameType | None = sys._getframe(1)
        outside: list[BatchSource] = []
        for _ in range(MOST_FRAMES):
            while frame is not None and not is_users(frame.f_code.co_filename):
                frame = frame.f_back
            if frame is None:
                break
            found, is_loop = sources_in(frame)
            if is_loop and (found or outside):
                return outside or found
            outside = outside or found
            frame = frame.f_back
        return []

    def _hook(self, source: BatchSource) -> None:
        calls = _Calls(self._training, source.name, source.file, source.line)
        if source.owner is None or not self._patches.around(source.owner, source.attribute, calls.call):
            text = f"Batches come from {source.name} ({source.file}:{source.line}): the wait for them was not seen."
            self._training.say(UNSEEN, text)


class _Calls:
    """The calls of one source, which is described once it has given a batch: by its name and where it is called."""

    def __init__(self, training: TrainingObserver, name: str, file: str | None, line: int | None) -> None:
        self._training = training
        self._name = name
        self._place = file, line
        self._shapes = BatchShapes(training.evidence.name)
        self._passes: dict[bool, list[int]] = {}
        """By whether gradients were wanted: the pass's number, and how many batches it had."""
        self._of = ""
        """The evidence that these are numbers of."""

    def call(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stand for a call of the source."""
        call = functools.partial(original, *args, **kwargs)
        if original.__name__ != "__iter__":
            return self.timed(call)
        return call() if self._is_elsewhere() or _has_loader(args[0]) else self._followed(call())

    def _is_elsewhere(self) -> bool:
        """Tell whether the calling thread does not train, or is about something that has its own part of a step."""
        thread = self._training.thread
        return get_ident() != thread.observed or thread.is_fetching or self._training.steps.is_open

    def timed(self, call: Callable[[], Any]) -> Any:
        """Count the call as the wait for a batch, if it gives one."""
        if self._is_elsewhere():
            return call()
        counter = self._training.counter
        passes = counter.passes

        def got(given: Any, start: int, end: int) -> None:
            if passes == counter.passes:  # else a DataLoader began within it
                self._note(given, start, end)

        return self._followed(self._training.wait("batch source", call, got))

    def _followed(self, given: Any) -> Any:
        """Put a generator that was just made behind one that times it."""
        if hasattr(type(given), "__next__") and getattr(type(given), "__name__", "") == "generator":
            return _Followed(given, self)
        return given

    def _note(self, given: Any, start: int, end: int) -> None:
        """Write the batch down. What holds no tensor, or has a gradient of its own, is none."""
        size, shape = self._shapes.of(given)
        if size is None or _is_none(given):
            return
        with_grad = bool(sys.modules["torch"].is_grad_enabled())
        number = self._pass(with_grad, start)
        index, number[1] = number[1], number[1] + 1
        batch = FetchedBatch(number[0], index, start, end, None, None, None, None, size, shape)
        self._training.got(batch, with_grad)

    def _pass(self, with_grad: bool, start: int) -> list[int]:
        """Return the pass for training, or that for evaluation: each goes on as long as the run."""
        evidence, counter = self._training.evidence, self._training.counter
        if self._of != evidence.path:  # a fork counts anew
            self._of, self._passes = evidence.path, {}
        known = self._passes.get(with_grad)
        if known is None:
            number, loader = counter.next_pass(), counter.next_loader()
            file, line = call_site() if self._place[0] is None else self._place
            facts = {"source": self._name, "dataset": self._name, "file": file, "line": line}
            begun = self._training.clock.us(start)
            evidence.write(("loader", loader, begun, facts), ("pass", number, loader, begun, begun, number, []))
            known = self._passes[with_grad] = [number, 0]
        return known


class _Followed:
    """A generator, whose `next()` is timed; whatever else is asked of it, it is asked of the generator."""

    def __init__(self, generator: Any, calls: _Calls) -> None:
        self._generator = generator
        self._calls = calls

    def __iter__(self) -> _Followed:
        return self

    def __next__(self) -> Any:
        return self._calls.timed(self._generator.__next__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def _is_none(given: Any) -> bool:
    """Tell whether it is no batch, for all its tensors: a loss, an output, a model, a dataset or what loads one."""
    torch: Any = sys.modules["torch"]
    others = (torch.nn.Module, torch.optim.Optimizer, torch.utils.data.Dataset, torch.utils.data.DataLoader)
    parts = given.values() if type(given) is dict else given if type(given) in (tuple, list) else (given,)
    return any(isinstance(one, others) or (isinstance(one, torch.Tensor) and one.requires_grad) for one in parts)


def _has_loader(pipeline: Any) -> bool:
    """Tell whether a DataLoader of torch's is a part of it, whose batches are seen by themselves."""
    loader = sys.modules["torch"].utils.data.DataLoader
    parts = list(vars(pipeline).values()) if hasattr(pipeline, "__dict__") else []
    parts += [one for part in parts if type(part) in (list, tuple) for one in part]
    return any(isinstance(part, loader) for part in parts)


# The search in the loop's source.


class BatchSource(NamedTuple):
    """Something that the loop calls for a batch."""

    name: str
    owner: Any
    """What has it as an attribute that can be replaced; None where it cannot, as a generator that runs already, or a
    function within a function."""
    attribute: str
    file: str
    line: int


def sources_in(frame: FrameType) -> tuple[list[BatchSource], bool]:
    """Return the sources of the innermost loop that a frame is in, or else of its function; and whether it is in one.

    There are none where the code is not at hand, or does not say.
    """
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = "".join(linecache.getlines(file, frame.f_globals))
    chain = _chain(_scope(ast.parse(text), frame.f_code.co_name, frame.f_code.co_firstlineno), line) if text else []
    if not chain:
        return [], False
    loops = [node for node in chain[:-1] if isinstance(node, _LOOPS)]
    found = _SourceSearch(frame, loops[-1] if loops else chain[0]).sources(chain[-1])
    return [BatchSource(name, owner, attribute, file, at) for name, owner, attribute, at in found], bool(loops)


def _scope(tree: ast.AST, name: str, first: int) -> ast.AST:
    """Return the function of that name whose definition, decorators included, begins at that line; else the module."""
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node.name == name:
            lines = (node.lineno, *(decorator.lineno for decorator in node.decorator_list))
            if first in lines:
                return node
    return tree


def _chain(node: ast.AST, line: int) -> list[ast.AST]:
    """List the statements that hold a line, outermost first, the scope itself before them."""
    chain = [node]
    while True:
        inner = [
            child
            for child in ast.walk(chain[-1])
            if isinstance(child, ast.stmt)
            and child is not chain[-1]
            and child.lineno <= line <= (child.end_lineno or child.lineno)
        ]
        if not inner:
            return chain if len(chain) > 1 else []
        chain.append(min(inner, key=lambda child: (child.lineno, -(child.end_lineno or child.lineno))))


class _SourceSearch:
    """Search in one loop of one frame."""

    def __init__(self, frame: FrameType, region: ast.AST) -> None:
        self._locals, self._globals = frame.f_locals, frame.f_globals
        self._assigned = [one for one in map(_assigned, _own_nodes(region)) if one is not None]
        made = [names for names, value, is_loop in self._assigned if not is_loop and _has_call(value)]
        self._made: set[str] = set().union(*made)
        self._found: dict[tuple[str, int], tuple[str, Any, str, int]] = {}

    def sources(self, statement: ast.AST) -> list[tuple[str, Any, str, int]]:
        wanted = _loaded(statement)
        followed: set[str] = set()
        while wanted - followed:
            name = min(wanted - followed)
            followed.add(name)
            for names, value, is_loop in self._assigned:
                if name in names:
                    wanted |= _loaded(value)
                    self._goes_through(value) if is_loop else self._calls(value)
        return list(self._found.values())

    def _calls(self, value: ast.AST) -> None:
        for node in ast.walk(value):
            if isinstance(node, ast.Call) and not self._is_made(node):
                self._call(node)

    def _is_made(self, call: ast.Call) -> bool:
        """Tell whether something that the loop has made goes into a call."""
        parts = [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(call.func, ast.Attribute):
            parts.append(call.func.value)
        return any(_loaded(part) & self._made for part in parts)

    def _call(self, call: ast.Call) -> None:
        function, name = call.func, _name_text(call.func)
        if isinstance(function, ast.Name) and function.id == "next" and call.args:
            self._iterated(self._value(call.args[0]), _name_text(call.args[0]), call.lineno)
        elif isinstance(function, ast.Name):
            value = self._value(function)
            if isinstance(value, FunctionType) and _may_give_batches(value.__module__):
                owner = sys.modules.get(self._globals.get("__name__", ""))
                is_global = owner is not None and vars(owner).get(function.id) is value
                self._add(name, owner if is_global else None, function.id, call.lineno)
            elif isinstance(value, type):
                self._iterates(value, name, call.lineno)
        elif isinstance(function, ast.Attribute):
            self._method(self._value(function.value), function.attr, name, call.lineno)

    def _method(self, base: Any, attribute: str, name: str, line: int) -> None:
        if base is _NOTHING or _is_torchs(base):
            return
        owner = base if isinstance(base, (ModuleType, type)) else type(base)
        module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        if isinstance(inspect.getattr_static(owner, attribute, None), FunctionType) and _may_give_batches(module):
            self._add(name, owner, attribute, line)

    def _goes_through(self, value: ast.AST) -> None:
        """Look at what a `for` has behind `in`."""
        while isinstance(value, ast.Call) and _name_text(value.func).rpartition(".")[2] in _THROUGH and value.args:
            value = value.args[-1] if _name_text(value.func) == "zip" else value.args[0]
        line = getattr(value, "lineno", 0)
        if isinstance(value, ast.Call):
            if _name_text(value.func) != "range":
                self._call(value)
        else:
            self._iterated(self._value(value), _name_text(value), line)

    def _iterated(self, value: Any, name: str, line: int) -> None:
        if value is _NOTHING or _is_torchs(value):
            return
        if isinstance(value, GeneratorType):
            self._add(name, None, "__next__", line)
        else:
            self._iterates(type(value), name, line)

    def _iterates(self, kind: type, name: str, line: int) -> None:
        """Add the first of the methods of that class that a `for` would call for each batch."""
        for method in ("__next__", "__iter__", "__getitem__"):
            is_own = isinstance(inspect.getattr_static(kind, method, None), FunctionType)
            if is_own and _may_give_batches(kind.__module__):
                self._add(name, kind, method, line)
                return

    def _add(self, name: str, owner: Any, attribute: str, line: int) -> None:
        self._found[name, line] = (name, owner, attribute, line)

    def _value(self, node: ast.AST) -> Any:
        """Return the value of a name, or of attributes of one; `_NOTHING` for all else."""
        if isinstance(node, ast.Name):
            for names in (self._locals, self._globals, vars(builtins)):
                if node.id in names:
                    return names[node.id]
        elif isinstance(node, ast.Attribute):
            base = self._value(node.value)
            if base is not _NOTHING:
                value = inspect.getattr_static(base, node.attr, _NOTHING)
                return _NOTHING if hasattr(type(value), "__get__") and not isinstance(base, ModuleType) else value
        return _NOTHING


def _own_nodes(region: ast.AST) -> list[ast.AST]:
    """List what runs with the region, and not when a function in it is called."""
    nodes, left = [], [region]
    while left:
        node = left.pop()
        nodes.append(node)
        left += [
            one for one in ast.iter_child_nodes(node) if not isinstance(one, (*_FUNCTIONS, ast.Lambda, ast.ClassDef))
        ]
    return nodes


def _assigned(node: ast.AST) -> tuple[set[str], ast.AST, bool] | None:
    """Return the names that a statement binds, what to, and whether it is a `for`."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return _names(node.target), node.iter, True
    if isinstance(node, _STATEMENTS) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name for target in targets for name in _names(target)}, node.value, False
    return None


def _names(node: ast.AST) -> set[str]:
    """Return the names in an expression; of a target `batch["x"]` the one that is changed."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _loaded(node: ast.AST) -> set[str]:
    """Return the names that are read in an expression, or in a statement's own line."""
    return set() if isinstance(node, (ast.If, ast.While, ast.With, ast.For)) else _names(node)


def _has_call(value: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(value))


def _name_text(node: ast.AST) -> str:
    """Return `self.data.next_batch`; empty for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_name_text(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _may_give_batches(module: Any) -> bool:
    return str(module).partition(".")[0] not in _NOT_SOURCES


def _is_torchs(value: Any) -> bool:
    """Tell a model, a loss, a tensor or an optimizer, whose class may be the user's own, or one of torch's modules."""
    torch: Any = sys.modules.get("torch")
    if isinstance(value, ModuleType):
        return not _may_give_batches(value.__name__)
    return torch is not None and isinstance(value, (torch.nn.Module, torch.Tensor, torch.optim.Optimizer))
