"""Two ranks started by Lightning from a plain `python`: what it trains with goes to OUT/RANK.pkl.

    python lightning_ranks.py trainer|fabric STRATEGY PHOTOS OUT

Its `ddp` runs this file again in the processes that it starts, and `ddp_spawn` imports it in them, with the DataModule.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import battery
import torch
from framework_data import recipe
from lightning import Fabric, LightningModule, Trainer

BATCH, RANKS = 5, 2

if TYPE_CHECKING:
    from lightning import LightningDataModule as Photos
else:
    exec(recipe("Lightning on several ranks"), globals())


class Model(LightningModule):
    """Keeps what it is given."""

    def __init__(self, out: str) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.out = out
        self.seen: dict[str, list[Any]] = {"trained": [], "validated": []}

    def training_step(self, batch: Any, index: int) -> Any:
        self.seen["trained"] += battery.kept([batch])
        return self.layer(batch["label"].float().reshape(-1, 1)).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.seen["validated"] += battery.kept([batch])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.0)

    def on_fit_end(self) -> None:
        write(self.out, self.global_rank, self.seen)


def write(out: str, rank: int, seen: Any) -> None:
    (Path(out) / f"{rank}.pkl").write_bytes(pickle.dumps(seen))


def train(strategy: str, folder: str, out: str) -> None:
    quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    limits: Any = {"max_epochs": 2, "enable_checkpointing": False, "num_sanity_val_steps": 0, "default_root_dir": out}
    trainer = Trainer(accelerator="cpu", devices=RANKS, strategy=strategy, **quiet, **limits)
    trainer.fit(Model(out), datamodule=Photos(folder, BATCH))


def with_fabric(strategy: str, folder: str, out: str) -> None:
    fabric = Fabric(accelerator="cpu", devices=RANKS, strategy=strategy)
    if strategy == "ddp":
        fabric.launch()
        fabric_rank(fabric, folder, out)
    else:
        fabric.launch(fabric_rank, folder, out)


def fabric_rank(fabric: Any, folder: str, out: str) -> None:
    photos = Photos(folder, BATCH)
    photos.setup("fit")
    batches = fabric.setup_dataloaders(photos.train_dataloader())
    write(out, fabric.global_rank, {"trained": battery.epochs(batches, 2)})


if __name__ == "__main__":
    {"trainer": train, "fabric": with_fabric}[sys.argv[1]](*sys.argv[2:])
