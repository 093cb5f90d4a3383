"""Optimizers whose first use does not import torch's compiler, as that of torch's own does: 1.5 s in every process."""

from __future__ import annotations

from typing import Any

import torch


class QuickOptimizer(torch.optim.Optimizer):
    """One without a `step`."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.param_groups.append({**self.defaults, **param_group})


class Descent(QuickOptimizer):
    """Plain gradient descent."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * parameter.grad

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
