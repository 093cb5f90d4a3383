"""Metrics of loaders, read by the trackers and the monitoring that they are for: all real, none with a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
import torch
from loader_data import write_folder

import headrace as hr
from headrace import metrics
from headrace.errors import UsageError

SAMPLES, BATCH = 12, 4


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("metrics") / "photos", SAMPLES)


@pytest.fixture
def loader(photos):
    return hr.Loader(photos, view=hr.Resize((8, 8)), batch_size=BATCH, shuffle=True)


def used(loader, passes=1):
    for _ in range(passes):
        for _ in loader:
            pass
    return loader


def test_counts_add_up_over_passes(loader):
    assert loader.counts() == {}
    used(loader, 3)
    counts = loader.counts()
    assert (counts["batches"], counts["samples"]) == (9, 3 * SAMPLES)
    assert counts["stage_items/decode"] == 3 * SAMPLES
    assert counts["stage_bytes/read"] == 3 * loader.stats().stages["read"].bytes


def test_counts_never_fall_while_passes_begin(loader):
    readings, done = [], threading.Event()

    def read():
        while not done.is_set():
            readings.append(loader.counts().get("samples", 0))

    reader = threading.Thread(target=read)
    reader.start()
    used(loader, 20)
    done.set()
    reader.join()
    assert readings == sorted(readings)
    assert loader.counts()["samples"] == 20 * SAMPLES


def test_metrics_since_the_last_reading(loader):
    now = [100.0]
    read = metrics.LoaderMetrics(loader, clock=lambda: now[0]).read
    used(loader, 2)
    now[0] += 2
    first = read()
    assert first["data/samples_per_s"] == SAMPLES  # two passes in two seconds
    assert sum(value for name, value in first.items() if name.startswith("data/stage_share/")) == pytest.approx(1)
    assert 0 <= first["data/wait_share"] <= 1
    now[0] += 1
    second = read()
    assert second["data/samples_per_s"] == 0
    assert second["data/wait_share"] == 0
    assert not any(name.startswith("data/stage_share/") for name in second)


def test_metrics_of_a_cache(photos):
    loader = used(hr.Loader(photos, view=hr.Resize((8, 8)), batch_size=BATCH, cache="ram:64MB"))
    read = metrics.LoaderMetrics(loader).read
    used(loader)
    assert read()["data/cache_hit_rate"] == 1


def test_prometheus_parses_what_is_exposed(loader, photos):
    from prometheus_client import parser

    used(loader, 2)
    mixture = used(hr.mix({"photos": hr.Loader(photos, view=hr.Resize((8, 8)), batch_size=BATCH)}))
    families = parser.text_string_to_metric_families(metrics.prometheus_text({"train": loader, "mixed": mixture}))
    found = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
    assert found["headrace_samples_total", "train", "0"] == 2 * SAMPLES
    assert found["headrace_samples_total", "mixed", "0"] == SAMPLES
    assert found["headrace_stage_items_total", "train", "0", "decode"] == 2 * SAMPLES
    assert found["headrace_ready_batches", "train", "0"] == 0
    assert found["headrace_threads", "train", "0"] == loader.threads


def test_every_count_is_described(loader):
    assert {name.partition("/")[0] for name in used(loader).counts()} <= set(metrics.COUNTERS)


def test_opentelemetry_reads_the_same(loader):
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics.observe({"train": used(loader)}, provider.get_meter("test"))
    data = json.loads(reader.get_metrics_data().to_json())["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    points = {
        (one["name"], point["attributes"].get("stage")): point for one in data for point in one["data"]["data_points"]
    }
    assert points["headrace.samples", None]["value"] == SAMPLES
    assert points["headrace.samples", None]["attributes"] == {"loader": "train", "rank": 0}
    assert points["headrace.stage_items", "decode"]["value"] == SAMPLES
    assert points["headrace.threads", None]["value"] == loader.threads
    provider.shutdown()


def test_tensorboard_shows_them(loader, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    read = metrics.LoaderMetrics(loader).read
    used(loader)
    with SummaryWriter(str(tmp_path)) as writer:
        for name, value in read().items():
            writer.add_scalar(name, value, 7)
    shown = EventAccumulator(str(tmp_path))
    shown.Reload()
    [event] = shown.Scalars("data/samples_per_s")
    assert event.step == 7
    assert event.value > 0


WEIGHTS_AND_BIASES = """
import sys

import wandb

import headrace as hr
from headrace.metrics import LoaderMetrics

loader = hr.Loader(sys.argv[1], view=hr.Resize((8, 8)), batch_size=4)
metrics = LoaderMetrics(loader)
with wandb.init(mode="offline", dir=sys.argv[2], project="test") as run:
    for step, batch in enumerate(loader):
        run.log(metrics.read(), step=step)
"""
MLFLOW = """
import sys

import mlflow

import headrace as hr
from headrace.metrics import LoaderMetrics

loader = hr.Loader(sys.argv[1], view=hr.Resize((8, 8)), batch_size=4)
metrics = LoaderMetrics(loader)
mlflow.set_tracking_uri(f"file://{sys.argv[2]}/runs")
with mlflow.start_run():
    for step, batch in enumerate(loader):
        mlflow.log_metrics(metrics.read(), step=step)
"""


def run_tracker(script, photos, folder):
    """Trackers start processes and threads that outlive a run, so each has an interpreter of its own."""
    environment = os.environ | {"WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
    subprocess.run([sys.executable, "-c", script, str(photos), str(folder)], check=True, env=environment, timeout=120)


@pytest.mark.long
def test_weights_and_biases_stores_them(photos, tmp_path):
    run_tracker(WEIGHTS_AND_BIASES, photos, tmp_path)
    [stored] = tmp_path.rglob("*.wandb")
    assert stored.read_bytes().count(b"data/samples_per_s") >= SAMPLES // BATCH


@pytest.mark.long
def test_mlflow_stores_them(photos, tmp_path):
    run_tracker(MLFLOW, photos, tmp_path)
    [stored] = tmp_path.rglob("metrics/data/samples_per_s")
    lines = [line.split() for line in stored.read_text().splitlines()]
    assert [int(step) for _, _, step in lines] == list(range(SAMPLES // BATCH))
    assert all(float(value) >= 0 for _, value, _ in lines)


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, 1)

    def forward(self, image, label=None):
        loss = self.layer(image.flatten(1).float()).mean()
        return {"loss": loss, "logits": image}


def test_hf_trainer_logs_them_beside_the_loss(loader, tmp_path):
    import transformers

    class LoaderTrainer(transformers.Trainer):
        def get_train_dataloader(self):
            return self.accelerator.prepare(loader.as_dataloader())

    options = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 1}
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), num_train_epochs=1, **options)
    trainer = LoaderTrainer(model=Regression(), args=arguments)
    metrics.add_trainer_callback(trainer, loader)
    logged = []

    class Tracker(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            logged.append(dict(logs))

    trainer.add_callback(Tracker())
    trainer.train()
    with_loss = [one for one in logged if "loss" in one]
    assert len(with_loss) == SAMPLES // BATCH
    assert all("data/wait_share" in one for one in with_loss)
    assert sum(one["data/samples_per_s"] > 0 for one in with_loss) >= 1


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")  # of torch
def test_lightning_logs_them_to_its_loggers(loader, tmp_path):
    import lightning
    from lightning.pytorch.loggers import CSVLogger

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Regression()

        def training_step(self, batch, _):
            return self.model(batch["image"])["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    logger = CSVLogger(str(tmp_path), name="run", version="0")
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=logger, log_every_n_steps=1, **quiet,
        callbacks=[metrics.lightning_callback(every_n_steps=1)],
    )  # fmt: skip
    trainer.fit(Model(), loader.as_dataloader())
    header = (tmp_path / "run" / "0" / "metrics.csv").read_text().splitlines()[0]
    assert "data/samples_per_s" in header
    assert "data/wait_share" in header


def test_what_is_no_loader_is_refused(photos):
    for wrong in (object(), torch.utils.data.DataLoader([1, 2])):
        with pytest.raises(UsageError, match=r"expected a headrace\.Loader"):
            metrics.LoaderMetrics(wrong)
