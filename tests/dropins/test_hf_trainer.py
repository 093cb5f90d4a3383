"""Hugging Face's Trainer: batches, epochs and the place in them are the loader's, in one process."""

from __future__ import annotations

import battery
import pytest
import torch
from framework_data import MAKERS, STEPS, recipe
from transformers import Trainer, TrainingArguments


@pytest.fixture(scope="module", params=MAKERS)
def make(request, tmp_path_factory):
    return MAKERS[request.param](tmp_path_factory.mktemp("hf_trainer"))


@pytest.fixture(scope="module")
def expected(make):
    """The first four epochs."""
    return battery.epochs(make(), 4)


class Model(torch.nn.Module):
    """Keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen, self.evaluated = [], []

    def forward(self, image, label, text):
        (self.seen if self.training else self.evaluated).extend(
            battery.kept([{"image": image, "label": label, "text": text}])
        )
        prediction = self.layer(label.float().reshape(-1, 1))
        return {"loss": prediction.mean(), "logits": prediction}


class LoaderTrainer(Trainer):
    def __init__(self, loader, evaluation=None, **options):
        super().__init__(**options)
        self.loader, self.evaluation = loader, evaluation

    def get_train_dataloader(self):
        return self.accelerator.prepare(self.loader.as_dataloader())

    def get_eval_dataloader(self, eval_dataset=None):
        return self.accelerator.prepare(self.evaluation.as_dataloader())


def trainer(loader, folder, *, evaluation=None, **options):
    """As the docs have it, and evaluation alike."""
    return LoaderTrainer(loader, evaluation, model=Model(), args=arguments(folder, **options))


def arguments(folder, **options):
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no"}
    given = {"num_train_epochs": 3, "save_strategy": "no", "output_dir": str(folder)}
    return TrainingArguments(**(quiet | given | options))


def train(loader, folder, *, resume=None, **options):
    """What a model is trained with."""
    trains = trainer(loader, folder, **options)
    trains.train(resume_from_checkpoint=resume)
    return trains.model.seen


@pytest.mark.long
def test_resumes_at_every_step(make, expected, tmp_path):
    check_resumed(make, expected, tmp_path, range(1, 2 * STEPS))


@pytest.mark.one_in(2)
def test_resumes_around_an_epochs_end(make, expected, tmp_path):
    check_resumed(make, expected, tmp_path, (2, STEPS))


def check_resumed(make, expected, tmp_path, steps):
    options = {"save_strategy": "steps", "save_steps": 1, "num_train_epochs": 2}
    battery.assert_equal(train(make(), tmp_path, **options), expected[: 2 * STEPS], "two epochs")
    for taken in steps:
        got = train(make(), tmp_path / "resumed", resume=str(tmp_path / f"checkpoint-{taken}"), num_train_epochs=2)
        battery.assert_equal(got, expected[taken : 2 * STEPS], f"resumed after {taken}")


@pytest.mark.one_in(2)
def test_resumes_in_the_process_that_was_stopped(make, expected, tmp_path):
    """The loader stands somewhere in mid-epoch; what Trainer says counts."""
    loader = make()
    train(loader, tmp_path, save_strategy="steps", save_steps=4, max_steps=STEPS + 5)
    for checkpoint in (STEPS + 1, 4):
        got = train(loader, tmp_path, resume=str(tmp_path / f"checkpoint-{checkpoint}"), max_steps=2 * STEPS + 2)
        battery.assert_equal(got, expected[checkpoint : 2 * STEPS + 2], f"resumed after {checkpoint}")
    battery.assert_equal(train(loader, tmp_path, max_steps=3), expected[:3], "started anew")


@pytest.mark.one_in(2)
def test_resumes_with_accumulated_gradients(make, expected, tmp_path):
    """Three optimizer steps an epoch, of three, three and one batches."""
    options = {"gradient_accumulation_steps": 3}
    train(make(), tmp_path, save_strategy="steps", save_steps=1, **options)
    for steps, taken in [(2, 6), (3, STEPS)]:
        got = train(make(), tmp_path, resume=str(tmp_path / f"checkpoint-{steps}"), **options)
        battery.assert_equal(got, expected[taken : 3 * STEPS], f"resumed after {steps} optimizer steps")


def test_reads_nothing_of_what_it_resumes_after(make, expected, tmp_path):
    read = []

    def watch(sample, rng):
        read.append(sample["text"])
        return sample

    options = {"save_strategy": "steps", "save_steps": STEPS + 5, "num_train_epochs": 2}
    train(make(), tmp_path, **options)
    train(make(map=watch), tmp_path, resume=str(tmp_path / f"checkpoint-{STEPS + 5}"), **options)
    assert sorted(read) == sorted(text for batch in expected[STEPS + 5 : 2 * STEPS] for text in batch["text"])


def test_counts_samples_and_evaluates_each_once(make, tmp_path):
    evaluation = make(shuffle=False, remainder="wrap")
    trains = trainer(make(), tmp_path, evaluation=evaluation, per_device_train_batch_size=6)
    assert trains.num_examples(trains.get_train_dataloader()) == 40
    predictions = trains.evaluation_loop(trains.get_eval_dataloader(), "evaluation").predictions
    assert sum(len(batch["label"]) for batch in trains.model.evaluated) == 42, "the last batch is filled up"
    assert len(predictions) == 40


@pytest.mark.one_in(2)
def test_recipe(make, expected, tmp_path):
    train(make(), tmp_path, save_strategy="steps", save_steps=STEPS + 3, max_steps=STEPS + 3)
    model = Model()
    names = {"Trainer": Trainer, "model": model, "args": arguments(tmp_path, eval_strategy="epoch"), "loader": make()}
    names |= {"validation": make(shuffle=False, remainder="wrap"), "resume": str(tmp_path / f"checkpoint-{STEPS + 3}")}
    exec(recipe("Hugging Face's Trainer"), names)
    battery.assert_equal(model.seen, expected[STEPS + 3 : 3 * STEPS], "resumed")
    once = battery.epochs(make(shuffle=False, remainder="wrap"), 1)
    assert [batch["text"] for batch in model.evaluated] == [batch["text"] for batch in once] * 2, "epochs 1 and 2"
    losses = [said["eval_loss"] for said in names["trainer"].state.log_history if "eval_loss" in said]
    assert len(losses) == 2


def test_evaluation_without_a_dataset_is_refused_by_trainer(make, tmp_path):
    """Which is why the recipe passes one."""
    with pytest.raises(ValueError, match="eval_dataset"):
        trainer(make(), tmp_path, evaluation=make(shuffle=False), eval_strategy="epoch")
