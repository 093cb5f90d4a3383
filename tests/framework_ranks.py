"""One of several ranks, run by torchrun: what frameworks give this rank goes to OUT/RANK.pkl, by kind and check.

    torchrun --nproc-per-node 2 framework_ranks.py PHOTOS OUT KIND:CHECK...

Each framework is imported by its own checks: one takes seconds.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import battery
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from framework_data import MAKERS

from headrace.errors import UsageError

TAKEN = 2
"""Batches before each interruption, in the second of two epochs where epochs are told."""

Make = Callable[..., Any]
"""Makes a Loader or a ThreadDataLoader."""


def accelerate_epochs(make: Make, folder: Path) -> Any:
    return battery.epochs(Accelerator(cpu=True).prepare(make().as_dataloader()))


def accelerate_registered(make: Make, folder: Path) -> Any:
    return _accelerate_resumed(make, folder, register=True)


def accelerate_stateful(make: Make, folder: Path) -> Any:
    return _accelerate_resumed(make, folder, register=False)


def _accelerate_resumed(make: Make, folder: Path, *, register: bool) -> Any:
    def prepared() -> Any:
        config = DataLoaderConfiguration(use_stateful_dataloader=not register)
        accelerator, dataloader = Accelerator(cpu=True, dataloader_config=config), make().as_dataloader()
        if register:
            accelerator.register_for_checkpointing(dataloader)
        return accelerator, accelerator.prepare(dataloader)

    accelerator, batches = prepared()
    battery.kept(batches)
    for taken, _ in enumerate(batches, 1):
        if taken == TAKEN:
            accelerator.save_state(str(folder))
            accelerator.wait_for_everyone()
            break
    accelerator, batches = prepared()
    accelerator.load_state(str(folder))
    return battery.epochs(batches)


def accelerate_skipped(make: Make, folder: Path) -> Any:
    accelerator = Accelerator(cpu=True)
    batches = accelerator.prepare(make().as_dataloader())
    batches.set_epoch(1)
    rest = battery.kept(accelerator.skip_first_batches(batches, TAKEN))
    batches.set_epoch(2)
    return rest + battery.kept(batches)


def accelerate_gathered(make: Make, folder: Path) -> Any:
    """Labels of an epoch, over all ranks."""
    accelerator = Accelerator(cpu=True)
    batches = accelerator.prepare(make(shuffle=False, remainder="wrap").as_dataloader())
    return torch.cat([accelerator.gather_for_metrics(batch["label"]) for batch in batches]).tolist()


def accelerate_unaware(make: Make, folder: Path) -> Any:
    """What a loader that was made for one rank says."""
    batches = Accelerator(cpu=True).prepare(make(rank=0, world_size=1).as_dataloader())
    try:
        return battery.kept(batches)
    except UsageError as error:
        return str(error)


def fabric_resumed(make: Make, folder: Path) -> Any:
    from lightning import Fabric

    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    dataloader = make().as_dataloader()
    batches = fabric.setup_dataloaders(dataloader)
    battery.kept(batches)
    battery.take(batches, TAKEN)
    fabric.save(folder / "state", {"data": dataloader})
    dataloader = make().as_dataloader()
    batches = fabric.setup_dataloaders(dataloader)
    fabric.load(folder / "state", {"data": dataloader})
    return battery.epochs(batches)


def lightning_resumed(make: Make, folder: Path) -> Any:
    from lightning import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[Any] = []

        def training_step(self, batch: Any, index: int) -> Any:
            self.seen += battery.kept([batch])
            return self.layer(batch["label"].float().reshape(-1, 1)).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    class Stop(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, *ignored: Any) -> None:
            if len(module.seen) == steps:
                trainer.save_checkpoint(saved)
                trainer.should_stop = True

    def fit(callbacks: list[Any], resume: Path | None) -> Any:
        quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        limits: Any = {"max_epochs": 3, "min_epochs": 0, "enable_checkpointing": False, "default_root_dir": folder}
        model = Model()
        trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", callbacks=callbacks, **quiet, **limits)
        trainer.fit(model, make().as_dataloader(), ckpt_path=resume)
        return model.seen

    steps, saved = len(make()) + TAKEN, folder / "saved.ckpt"
    return fit([Stop()], None)[steps:] + fit([], saved)


def hf_resumed(make: Make, folder: Path) -> Any:
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[Any] = []

        def forward(self, image: Any, label: Any, text: Any) -> Any:
            self.seen += battery.kept([{"image": image, "label": label, "text": text}])
            return {"loss": self.layer(label.float().reshape(-1, 1)).mean()}

    class LoaderTrainer(Trainer):
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(make().as_dataloader())

    def train(resume: str | None, **options: Any) -> Any:
        quiet: Any = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no"}
        args = TrainingArguments(output_dir=str(folder), num_train_epochs=3, ddp_backend="gloo", **quiet, **options)
        model = Model()
        LoaderTrainer(model=model, args=args).train(resume_from_checkpoint=resume)
        return model.seen

    steps = len(make()) + TAKEN
    train(None, save_strategy="steps", save_steps=steps, max_steps=steps)
    return train(str(folder / f"checkpoint-{steps}"), save_strategy="no")


def main(photos: Path, out: Path, checks: list[str]) -> None:
    results = {}
    for name in checks:
        kind, check = name.split(":")
        folder = out / kind / check
        folder.mkdir(parents=True, exist_ok=True)
        results[name] = globals()[check](MAKERS[kind](photos), folder)
    (out / f"{os.environ['RANK']}.pkl").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
