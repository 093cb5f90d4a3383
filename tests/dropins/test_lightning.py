"""Lightning's Fabric and Trainer: batches, epochs and the place in them are the loader's, in one process."""

from __future__ import annotations

import battery
import pytest
import torch
from framework_data import MAKERS, STEPS, assert_not_copied, loader_only, recipe, run_recipe, threads_only, watched
from lightning import Fabric, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from processes import own_threads
from torch.utils.data import DataLoader

from headrace.device import DevicePrefetcher
from headrace.errors import UsageError

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),  # of torch
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning"),
]


@pytest.fixture(scope="module", params=MAKERS)
def make(request, tmp_path_factory):
    return MAKERS[request.param](tmp_path_factory.mktemp("lightning"))


@pytest.fixture(scope="module")
def expected(make):
    """The first four epochs."""
    return battery.epochs(make(), 4)


class Model(LightningModule):
    """Keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def training_step(self, batch, index):
        self.seen += battery.kept([batch])
        return self.layer(batch["label"].float().mean().reshape(1, 1)).sum()

    def predict_step(self, batch, index):
        return batch["label"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


class ValidatedModel(Model):
    def __init__(self):
        super().__init__()
        self.validated = []

    def validation_step(self, batch, index):
        self.validated += battery.kept([batch])


class StopAfter(Callback):
    """Saves a checkpoint once `count` batches were trained with, and stops."""

    def __init__(self, count, path):
        self.count, self.path = count, path

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if len(module.seen) == self.count:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


def trainer(folder, *, callbacks=(), **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    given = {"max_epochs": 3, "min_epochs": 0, "default_root_dir": folder, "enable_checkpointing": saves}
    return Trainer(accelerator="cpu", callbacks=list(callbacks), **(quiet | given | options))


def fit(batches, folder, *, resume=None, **options):
    """What a model is trained with."""
    model = Model()
    trainer(folder, **options).fit(model, batches, ckpt_path=resume)
    return model.seen


@pytest.fixture(scope="module")
def fabric():
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    return fabric


def test_fabric_gives_the_loaders_batches(make, expected, fabric):
    batches = fabric.setup_dataloaders(make().as_dataloader())
    assert len(batches) == STEPS
    battery.assert_equal(battery.epochs(batches, 4), expected, "four epochs")


@pytest.mark.parametrize("kind", MAKERS)
def test_fabric_copies_nothing(tmp_path, kind, fabric):
    loader = watched(kind, tmp_path)
    assert_not_copied(list(fabric.setup_dataloaders(loader.as_dataloader())), loader)


@pytest.mark.parametrize("holder", ["the DataLoader", "the loader"])
@pytest.mark.one_in(4)
def test_fabric_resumes_at_every_step_and_goes_on(make, expected, fabric, tmp_path, holder):
    """Fabric counts passes from 0 in each process; the state comes through its own files."""
    for taken in range(1, STEPS + 1):
        loader = make()
        dataloader = loader.as_dataloader()
        batches = fabric.setup_dataloaders(dataloader)
        battery.kept(batches)
        battery.take(batches, taken)
        state = {"data": dataloader if holder == "the DataLoader" else loader}
        fabric.save(tmp_path / "state", state)
        loader = make()
        dataloader = loader.as_dataloader()
        batches = fabric.setup_dataloaders(dataloader)
        fabric.load(tmp_path / "state", {"data": dataloader if holder == "the DataLoader" else loader})
        got = battery.epochs(batches, 2)
        battery.assert_equal(got, expected[STEPS + taken :][: len(got)], f"resumed after {taken}")
        assert len(got) == 2 * STEPS - taken % STEPS


@threads_only
def test_fabric_and_trainer_keep_bare_threads(make, expected, fabric, tmp_path):
    batches = fabric.setup_dataloaders(make())
    iterator = iter(batches)
    got = battery.kept([next(iterator)])
    assert own_threads() != []
    got += battery.kept(iterator)
    battery.assert_equal(got, expected[:STEPS], "Fabric")
    seen = []

    class Watch(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            seen.append(own_threads())

    battery.assert_equal(fit(make(), tmp_path, callbacks=[Watch()], max_epochs=1), expected[:STEPS], "Trainer")
    assert seen[0] != []


@loader_only
def test_fabric_insists_on_a_dataloader(make, fabric):
    with pytest.raises(TypeError, match="Only PyTorch DataLoader"):
        fabric.setup_dataloaders(make())


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "bare", [pytest.param(False, marks=pytest.mark.long), True], ids=["DataLoader", "loader itself"]
)
def test_trainer_resumes_at_every_step(make, expected, tmp_path, bare):
    """Two epochs' worth of steps, an epoch's last included; and twice."""

    def batches():
        return make() if bare else make().as_dataloader()

    saved = tmp_path / "saved.ckpt"
    for taken in range(1, 2 * STEPS + 1):
        seen = fit(batches(), tmp_path, callbacks=[StopAfter(taken, saved)])
        battery.assert_equal(seen, expected[:taken], f"stopped after {taken}")
        got = fit(batches(), tmp_path, resume=saved)
        battery.assert_equal(got, expected[taken : 3 * STEPS], f"resumed after {taken}")
    fit(batches(), tmp_path, callbacks=[StopAfter(3, saved)])
    again = tmp_path / "again.ckpt"
    assert len(fit(batches(), tmp_path, resume=saved, callbacks=[StopAfter(6, again)])) == 6
    battery.assert_equal(fit(batches(), tmp_path, resume=again), expected[9 : 3 * STEPS], "resumed twice")


def resumed_at_an_epochs_end(batches, folder, epochs):
    """From a checkpoint as ModelCheckpoint saves it unless told otherwise."""
    fit(batches(), folder, max_epochs=epochs, callbacks=[ModelCheckpoint(folder, "saved")])
    return fit(batches(), folder, resume=folder / "saved.ckpt", callbacks=[ModelCheckpoint(folder, "other")])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("epochs", [1, 2])
def test_trainer_resumes_at_an_epochs_end(make, expected, tmp_path, epochs):
    got = resumed_at_an_epochs_end(lambda: make().as_dataloader(), tmp_path, epochs)
    battery.assert_equal(got, expected[epochs * STEPS : 3 * STEPS], f"resumed after {epochs} epochs")


def test_trainer_starts_a_bare_loader_over_at_an_epochs_end(make, expected, tmp_path):
    """Lightning restores a loader in mid-epoch only, and announces epochs to samplers only. The docs warn of it."""
    got = resumed_at_an_epochs_end(make, tmp_path, 1)
    battery.assert_equal(got, expected[: 2 * STEPS], "a bare loader")


def test_trainer_takes_the_next_epoch_after_a_limited_one(make, expected, tmp_path):
    got = fit(make().as_dataloader(), tmp_path, limit_train_batches=3)
    battery.assert_equal(got, [batch for epoch in range(3) for batch in expected[epoch * STEPS :][:3]], "limited")


def test_trainer_validates(make, expected, tmp_path):
    """With a sanity check of two batches first, and in mid-epoch."""
    model = ValidatedModel()
    train, validation = make().as_dataloader(), make(shuffle=False).as_dataloader()
    trainer(tmp_path, max_epochs=2, val_check_interval=3).fit(model, train, validation)
    battery.assert_equal(model.seen, expected[: 2 * STEPS], "trained with")
    whole = [batch["text"] for batch in battery.kept(make(shuffle=False))]
    assert [batch["text"] for batch in model.validated] == whole[:2] + whole * 4


def test_trainer_saves_a_run_over_a_prefetcher(make, tmp_path):
    """It asks by a protocol which loaders have state, and calls those when it saves."""
    sources = [make(), make().as_dataloader(), DataLoader(_Labels(), batch_size=2)]
    for source in sources:
        model = Model()
        saving = trainer(tmp_path, callbacks=[ModelCheckpoint(tmp_path)], max_epochs=1)
        saving.fit(model, DevicePrefetcher(source, "cpu"))
        assert len(model.seen) == len(source)


class _Labels(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"label": index}


@loader_only  # of a ThreadDataLoader's own batch sampler Lightning warns
def test_trainer_predicts_with_the_loader_itself(make, tmp_path):
    """Lightning puts a sampler of its own into any DataLoader that it predicts with."""
    got = trainer(tmp_path).predict(Model(), make(shuffle=False))
    want = [batch["label"] for batch in battery.kept(make(shuffle=False))]
    assert [labels.tolist() for labels in got] == [labels.tolist() for labels in want]
    with pytest.raises(UsageError, match="got RankSampler to sample by: give the loader itself to Lightning's pred"):
        trainer(tmp_path).predict(Model(), make().as_dataloader())


def test_trainer_overfits_with_the_loader_itself(make, expected, tmp_path):
    got = fit(make(shuffle=False), tmp_path, overfit_batches=2, max_epochs=2)
    texts = [batch["text"] for batch in battery.take(make(shuffle=False), 2)]
    assert [batch["text"] for batch in got] == texts * 2
    with (
        pytest.raises(UsageError, match=r"got SequentialSampler .*overfit_batches"),
        pytest.warns(UserWarning, match="turning off the train dataloader shuffling"),
    ):
        fit(make().as_dataloader(), tmp_path, overfit_batches=2)


def test_fabric_recipe(make, expected, fabric, tmp_path):
    def run(path, **stop):
        model, optimizer = fabric.setup(layer := torch.nn.Linear(1, 1), torch.optim.SGD(layer.parameters()))
        names = {"model": model, "optimizer": optimizer, "loader": make(), "epochs": 3, "fabric": fabric}
        save = {"save": lambda names: fabric.save(tmp_path / "saved", names["state"])}
        return run_recipe("Lightning Fabric", resume=path, **save, **names, **stop)

    taken = STEPS + 3
    battery.assert_equal(run(None, stop_after=taken), expected[:taken], "stopped")
    battery.assert_equal(run(tmp_path / "saved"), expected[taken : 3 * STEPS], "resumed")


def test_trainer_recipe(make, expected, tmp_path):
    fit(make().as_dataloader(), tmp_path, callbacks=[StopAfter(STEPS + 3, tmp_path / "saved.ckpt")])
    model = Model()
    names = {"trainer": trainer(tmp_path), "model": model, "loader": make(), "resume": tmp_path / "saved.ckpt"}
    exec(recipe("Lightning Trainer"), names)
    battery.assert_equal(model.seen, expected[STEPS + 3 : 3 * STEPS], "resumed")
