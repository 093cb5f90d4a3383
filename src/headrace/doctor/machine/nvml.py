"""NVIDIA's management library, asked so that what it does not tell is None with its reason. Nothing is ever set."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Nvml:
    """The `pynvml` of nvidia-ml-py, or a double with functions of the same names."""

    library: Any
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a function's answer is missing, by its name."""

    def ask(self, function: str, *arguments: Any) -> Any:
        """The function's answer, or None and a reason: older packages, drivers and devices lack some, each with an
        exception of its own, and a GPU in MIG mode refuses others."""
        try:
            return getattr(self.library, function)(*arguments)
        except Exception as error:
            self.reasons[function] = f"{type(error).__name__}: {error}"
            return None


def open_nvml() -> tuple[Nvml | None, str | None]:
    """The library, begun; or None and why there is none. Give it back with `close_nvml`."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError as error:
        return None, f"{error}: install it with pip install nvidia-ml-py"
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return None, f"NVML: {error}"
    return Nvml(library), None


def close_nvml(nvml: Nvml) -> None:
    nvml.ask("nvmlShutdown")
