"""Scripts that train as frameworks' users do; named on the command line, perhaps with a number of epochs.

Each evaluates between its training steps."""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from typing import Any

import torch
from torch import Tensor
from training_loops import Loop, loader, pairs


def accelerate(epochs: int = 4) -> None:
    """Four epochs of six batches, two of them a step; an evaluation after each epoch."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    loop = Loop()
    loaders = loader(24, num_workers=1), loader(8)
    model, optimizer, train, held_out = accelerator.prepare(loop.model, loop.optimizer, *loaders)
    for _ in range(epochs):
        for inputs, targets in train:
            with accelerator.accumulate(model):
                accelerator.backward((model(inputs) - targets).square().mean())
                optimizer.step()
                optimizer.zero_grad()
        for inputs, _ in held_out:
            with torch.no_grad():
                model(inputs)


def lightning(epochs: int = 2) -> None:
    """Two epochs of six batches, two of them a step, each epoch followed by a validation of two batches."""
    from lightning import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, _: int) -> Tensor:
            inputs, targets = batch
            return (self.model(inputs) - targets).square().mean()

        def validation_step(self, batch: Any, _: int) -> None:
            self.model(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = dict.fromkeys(("checkpointing", "progress_bar", "model_summary"), False)
    quiet = {"logger": False, **{f"enable_{name}": value for name, value in quiet.items()}}
    trainer = Trainer(accelerator="cpu", devices=1, max_epochs=epochs, accumulate_grad_batches=2, **quiet)
    trainer.fit(Module(), loader(24), loader(8))


def transformers(epochs: int = 2) -> None:
    """Two epochs of six batches, two of them a step, each epoch followed by an evaluation of two batches."""
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 1)

        def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = self.linear(inputs)
            return {"loss": (logits - labels).square().mean(), "logits": logits}

    def rows(count: int) -> list[dict[str, Tensor]]:
        return [{"inputs": inputs, "labels": labels} for inputs, labels in pairs(count)]

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            gradient_accumulation_steps=2,
            num_train_epochs=epochs,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        Trainer(Model(), arguments, train_dataset=rows(24), eval_dataset=rows(8)).train()  # type: ignore[arg-type]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"accelerate": accelerate, "lightning": lightning, "transformers": transformers}[sys.argv[1]](
        *map(int, sys.argv[2:])
    )
