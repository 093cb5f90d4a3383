"""A training under a probe of which one function after another raises. It must not notice.

    python failing_probe.py [COUNT]        with the probe's environment; prints {function: what came of it} as JSON

Of all functions, or of as many drawn at random, but always the same. Each fails in a process of its own, a fork of this
one, since a hook that has failed stays off.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from quick_optimizer import Descent
from torch.utils.data import DataLoader, TensorDataset

EXPECTED = 12.0
"""What the training comes to."""
DEADLINE_S = 20
STAND_INS = {
    "Builtin.__call__",
    "CountedCalls.call",
    "LoaderHooks._begin",
    "LoaderHooks._fetch",
    "LoaderHooks._fetch_elsewhere",
    "LoaderHooks._read",
    "SampleComparison.collate",
    "TensorMethod.__get__",
    "TrainingObserver.wait",
    "_DataQueue._dumps",
    "_DataQueue.put",
    "_DataQueue.send",
    "_Dataset.__getattr__",
    "_Dataset.__getitem__",
    "_Dataset._getitems",
    "_Fetch.keep_changes",
    "_IndexQueue.get",
}
"""They stand for the user's own functions, and call those: all else that they call is made to fail."""
GUARDS = {
    "Account.leave",
    "CountedCalls.count",
    "LoaderHooks._not_received",
    "Stages.enter",
    "TrainingObserver.enter",
    "TrainingObserver.fail",
    "TrainingObserver.leave",
}
"""They hold the `except` that keeps what they call from the run."""
Victim = tuple[Any, str]
"""A class or module of the probe, and the name of its function."""


def train() -> float:
    """Two passes, with workers and without; what it returns depends on every batch."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = Descent(model.parameters(), lr=1.0)
    for workers in (0, 1):
        for (numbers,) in DataLoader(TensorDataset(torch.ones(6, 1)), batch_size=2, num_workers=workers):
            optimizer.zero_grad()
            (-model(numbers).sum()).backward()
            optimizer.step()
    return float(model.weight.detach())


def victims() -> Iterator[Victim]:
    for name, module in sorted(sys.modules.items()):
        if name.startswith("_headrace_probe"):
            for owner in (module, *_own(module, inspect.isclass, name)):
                yield from ((owner, function.__name__) for function in _own(owner, inspect.isfunction, name))


def _own(owner: Any, kind: Callable[[Any], bool], module: str) -> list[Any]:
    """Of its attributes, those defined in that module; what else they wrap is none of the probe's."""
    return [value for value in vars(owner).values() if kind(value) and value.__module__ == module]


def raises(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("this function of the probe fails")


def trained_without(victim: Victim) -> str:
    """`fine`, or what went wrong in the training."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(DEADLINE_S)
        setattr(*victim, raises)
        try:
            result = train()
            said = "fine" if result == EXPECTED else f"came to {result}"
        except BaseException:
            said = traceback.format_exc()
        os.write(write, said.encode()[-4000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        said = file.read().decode()
    _, status = os.waitpid(child, 0)
    return said or f"ended with {status}"


def drawn(count: int | None) -> dict[str, Victim]:
    named = {f"{owner.__name__}.{name}": (owner, name) for owner, name in victims()}
    names = sorted(set(named) - STAND_INS - GUARDS)
    names = names if count is None else random.Random(0).sample(names, count)
    return {name: named[name] for name in names}


if __name__ == "__main__":
    train()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else None
    sys.stdout.write(json.dumps({name: trained_without(victim) for name, victim in drawn(count).items()}))
