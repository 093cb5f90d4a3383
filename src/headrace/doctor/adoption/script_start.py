"""Start of a script up to its first training pass over a DataLoader."""

from __future__ import annotations

import os
import runpy
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import headrace as hr
from headrace.errors import UsageError

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


class _LoaderFoundError(BaseException):
    """Signal that the script has begun to iterate the wanted loader. No handler of the script catches it."""


def only_rank() -> dict[str, str]:
    """Return the variables with which a launcher makes a process the only rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    return {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def script_loader(script: Sequence[str], dataset: str = "") -> DataLoader[Any] | hr.Loader:
    """Run a script up to its first training pass over a DataLoader of this dataset class, and return that loader.

    A pass that begins with autograd off is an evaluation. A pass over Headrace's Loader counts for any dataset.
    `script` is the command line after `python`. Raises UsageError if the script ends first.
    """
    import torch
    from torch.utils.data import DataLoader

    original = DataLoader.__iter__
    found: list[DataLoader[Any] | hr.Loader] = []

    def leave(loader: DataLoader[Any] | hr.Loader) -> Any:
        found.append(loader)
        raise _LoaderFoundError

    def begin(loader: DataLoader[Any]) -> Any:
        kind = type(loader.dataset)
        is_wanted = not dataset or kind.__qualname__.split(".")[-1] == dataset.split(".")[-1]
        return leave(loader) if is_wanted and torch.is_grad_enabled() else original(loader)

    try:
        with patch.object(DataLoader, "__iter__", begin), patch.object(hr.Loader, "__iter__", leave):
            _run(list(script))
    except SystemExit as error:
        if found:
            return found[0]
        raise UsageError(f"expected {script[0]} to iterate a DataLoader, got its end (exit {error.code})") from error
    except BaseException:  # exceptions of a framework's own clean-up would hide the loader
        if not found:
            raise
    if found:
        return found[0]
    raise UsageError(f"expected {script[0]} to iterate a DataLoader over a {dataset or 'dataset'}, got its end")


def _run(script: list[str]) -> None:
    is_module = script[0] == "-m"
    argv = script[1:] if is_module else script
    folder = os.getcwd() if is_module else os.path.dirname(os.path.abspath(argv[0]))
    with patch.object(sys, "argv", argv), patch.object(sys, "path", [folder, *sys.path]):
        if is_module:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(argv[0], run_name="__main__")
