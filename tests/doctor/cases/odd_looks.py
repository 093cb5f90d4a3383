"""Photos whose dataset does something odd where a thread of its own looks at samples, and is honest in training."""

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset

EVER = 1_000_000


def hang():
    time.sleep(EVER)


def spin():
    while True:
        pass


def fail():
    raise LookupError("not this one")


ODD = {
    "nothing": lambda: None,
    "hang": hang,
    "spin": spin,
    "raise": fail,
    "print": lambda: print("a sample"),
    "leave": lambda: os._exit(5),
    "exit": lambda: sys.exit(6),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


class Photos(Dataset):
    def __init__(self, files, odd):
        self.files, self.odd = files, odd

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if threading.current_thread() is not threading.main_thread():
            ODD[self.odd]()
        image = Image.open(self.files[index]).convert("RGB").resize((64, 64), Image.BILINEAR)
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels).permute(2, 0, 1), index


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--odd", choices=ODD, default="nothing")
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--log", help="a file that each run adds a line to")
    parser.add_argument("--ranks", action="store_true")
    args = parser.parse_args()

    if args.ranks:
        torch.distributed.init_process_group("gloo")
    if args.log:
        with open(args.log, "a") as log:
            log.write("started\n")
    files = sorted(map(str, Path(args.data).glob("*.jpg")))
    loader = DataLoader(Photos(files, args.odd), batch_size=4, shuffle=True)
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 64))
    if args.ranks:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = Descent(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        for images, places in loader:
            loss = torch.nn.functional.cross_entropy(model(images), places)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if args.epochs < 10:
            print(f"epoch {epoch}", flush=True)
    sys.exit(args.status)


if __name__ == "__main__":
    main()
