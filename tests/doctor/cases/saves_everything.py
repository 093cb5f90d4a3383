"""Saves, logs and tracks at every step, in every way, over what is there and beside it; and reads it again."""

import csv
import logging
import os
import shutil
import sys
from pathlib import Path

import cv2
import h5py
import numpy as np
import torch
import torch.distributed.checkpoint as distributed_checkpoint
from PIL import Image
from quick_optimizer import Descent
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import load_file, save_file
from torch.package import PackageExporter
from torch.utils.data import DataLoader, Dataset

elsewhere = Path(sys.argv[1])


def prepare(data):
    """Prepares data at the first run, in a folder elsewhere: pictures, and a marker that they are complete."""
    data.mkdir()
    for number in range(8):
        assert cv2.imwrite(str(data / f"{number}.png"), np.full((2, 2, 3), number, np.uint8))
    (data / "done").touch()


class Noisy(Dataset):
    """Workers write, too."""

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        with open(f"worker-{os.getpid()}.log", "a") as log:
            log.write(f"{index}\n")
        picture = cv2.imread(str(elsewhere / "prepared" / f"{index % 8}.png"))
        assert picture[0, 0, 0] == index % 8
        return torch.full((4,), float(index))


class Tracker:
    """As trackers do: a folder of its own, where the environment says, or here."""

    def __init__(self):
        assert os.environ["WANDB_MODE"] == "offline"
        self.folders = [Path(os.environ["WANDB_DIR"], "wandb"), Path("wandb", "run-1")]
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)

    def log(self, step, loss):
        for folder in self.folders:
            with open(folder / "events", "ab") as events:
                events.write(b"%d %f\n" % (step, loss))


def save(step, model, optimizer):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, "last.pt")
    assert torch.load("last.pt")["step"] == step
    torch.save(state, "tmp.pt")
    os.replace("tmp.pt", Path("best.pt"))
    shutil.copyfile("best.pt", f"epoch-{step}.pt")
    torch.save(state, elsewhere / "far.tmp")
    os.replace(elsewhere / "far.tmp", elsewhere / "far.pt")
    with open("stream.pt", "wb") as file:
        torch.save(state, file)
    save_file(model.state_dict(), "model.safetensors")
    assert load_file("model.safetensors")["weight"].equal(model.weight)
    save_numpy({"a": np.full(3, step)}, filename="arrays.safetensors")
    traced = torch.jit.trace(model, torch.ones(1, 4))
    torch.jit.save(traced, "traced.pt")
    traced.save("script.pt")
    with PackageExporter("package.pt") as package:
        package.save_text("notes", "step", str(step))
    checkpoint(step, model)


def checkpoint(step, model):
    """A folder for each, of which the last two stay."""
    shutil.rmtree(f"checkpoint-{step - 2}", ignore_errors=True)
    os.makedirs(f"checkpoint-{step}", exist_ok=True)
    torch.save(model.state_dict(), f"checkpoint-{step}/model.pt")
    distributed_checkpoint.save(model.state_dict(), checkpoint_id=f"checkpoint-{step}/parts", no_dist=True)


def report(step, loss):
    with open("metrics.csv", "a") as metrics:
        csv.writer(metrics).writerow([step, loss])
    np.save("losses.npy", np.array([loss]))
    np.savetxt("losses.txt", [loss])
    picture = np.full((8, 8, 3), step, np.uint8)
    Image.fromarray(picture).save("sample.png")
    assert cv2.imwrite("sample.jpg", picture)
    with h5py.File("features.h5", "a") as features:
        assert "of before" in features
        features[str(step)] = picture
    logging.info("step %d", step)


def main():
    logging.basicConfig(filename="train.log", level=logging.INFO)
    os.makedirs("outputs/samples", exist_ok=True)
    torch.set_num_threads(1)
    prepare(elsewhere / "prepared")
    model = torch.nn.Linear(4, 1)
    optimizer = Descent(model.parameters(), lr=1e-3)
    tracker = Tracker()
    for step, batch in enumerate(DataLoader(Noisy(), batch_size=4, num_workers=2)):
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        save(step, model, optimizer)
        report(step, loss.item())
        tracker.log(step, loss.item())
        Path("outputs", "samples", f"{step}.txt").write_text("x")


if __name__ == "__main__":
    main()
