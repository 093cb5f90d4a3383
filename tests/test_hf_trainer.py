"""Hugging Face's Trainer: batches, epochs and the place in them are the loader's, in one process."""

from __future__ import annotations

import battery
import pytest
import torch
from framework_data import STEPS, maker
from processes import own_threads
from transformers import Trainer, TrainingArguments


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    return maker(tmp_path_factory.mktemp("hf_trainer"))


@pytest.fixture(scope="module")
def expected(make):
    """The first four epochs."""
    return battery.epochs(make(), 4)


class Model(torch.nn.Module):
    """Keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def forward(self, image, label, text):
        self.seen += battery.kept([{"image": image, "label": label, "text": text}])
        prediction = self.layer(label.float().reshape(-1, 1))
        return {"loss": prediction.mean(), "logits": prediction}


class LoaderTrainer(Trainer):
    """As the docs have it."""

    def __init__(self, loader, evaluation=None, **options):
        super().__init__(**options)
        self.loader, self.evaluation = loader, evaluation

    def get_train_dataloader(self):
        return self.accelerator.prepare(self.loader.as_dataloader())

    def get_eval_dataloader(self, eval_dataset=None):
        return self.accelerator.prepare(self.evaluation.as_dataloader())


def trainer(loader, folder, *, evaluation=None, **options):
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no"}
    given = {"num_train_epochs": 3, "save_strategy": "no", "output_dir": str(folder)}
    return LoaderTrainer(loader, evaluation, model=Model(), args=TrainingArguments(**(quiet | given | options)))


def train(loader, folder, *, resume=None, **options):
    """What a model is trained with."""
    trains = trainer(loader, folder, **options)
    trains.train(resume_from_checkpoint=resume)
    return trains.model.seen


def test_resumes_at_every_step(make, expected, tmp_path):
    seen = train(make(), tmp_path, save_strategy="steps", save_steps=1)
    battery.assert_equal(seen, expected[: 3 * STEPS], "three epochs")
    for taken in range(1, 3 * STEPS):
        got = train(make(), tmp_path, resume=str(tmp_path / f"checkpoint-{taken}"))
        battery.assert_equal(got, expected[taken : 3 * STEPS], f"resumed after {taken}")
