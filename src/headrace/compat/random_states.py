"""The states of the global random sources, to tell whether anybody has drawn from one."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np


def global_states() -> dict[str, Any]:
    """By the source's name, as messages have it; 25 µs. That of torch only where it is imported."""
    states = {"random": random.getstate(), "numpy.random": _numpy_state()}
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch's default generator"] = torch.get_rng_state().numpy().tobytes()
    return states


def moved_sources(before: dict[str, Any]) -> list[str]:
    """Names of those that have moved since `before`."""
    return [name for name, state in global_states().items() if name in before and state != before[name]]


def _numpy_state() -> Any:
    state: Any = np.random.get_state(legacy=False)
    own = state["state"]
    # Another bit generator than the Mersenne Twister (`set_bit_generator`) holds other things, arrays among them.
    return (own["key"].tobytes(), own["pos"]) if state["bit_generator"] == "MT19937" else repr(state)
