"""Runs that stand still after some steps, each by one cause; and some that only pause before they go on."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset, IterableDataset

COUNT, AT = 400, 40
lock = threading.Lock()


class Rows(Dataset):
    """Rows of noise, one of which never comes."""

    def __init__(self, kind: str, server: tuple[str, int]) -> None:
        self.kind, self.server = kind, server

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        if index == (0 if self.kind == "startup" else AT):
            self.stand()
        return torch.randn(16)

    def stand(self) -> None:
        if self.kind == "startup":
            time.sleep(3.0)
        if self.kind in ("never", "alone"):
            threading.Event().wait()
        if self.kind == "lock":
            with lock:
                time.sleep(0.001)
        if self.kind == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.kind == "server":
            with socket.create_connection(self.server) as connection:
                connection.recv(1)


class Stream(IterableDataset):
    """Rows of a rank, ten batches or eleven."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __iter__(self):
        for _ in range(40 if self.rank == 1 else 44):
            time.sleep(0.01)
            yield torch.randn(16)


def train(loader, model) -> None:
    optimizer = Descent(model.parameters(), lr=1e-4)
    for batch in loader:
        loss = model(batch).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def unsent(rows: list[torch.Tensor]) -> list[object]:
    """Collate to what cannot be pickled."""
    return [torch.stack(rows), threading.Lock()]


def start(_: int) -> None:
    """Compute before the first batch, as imports do."""
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        pass


def main() -> None:
    ask = argparse.ArgumentParser()
    kinds = ("never", "alone", "lock", "stopped", "server", "ranks", "unsent", "pauses", "startup")
    ask.add_argument("kind", choices=kinds)
    asked = ask.parse_args()
    if asked.kind == "ranks":
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
        train(DataLoader(Stream(dist.get_rank()), batch_size=4), model)
        dist.barrier()
        dist.destroy_process_group()
        return
    silent = socket.create_server(("127.0.0.1", 0))
    if asked.kind == "lock":  # held when the workers are forked
        held = threading.Event()
        threading.Thread(target=lambda: (lock.acquire(), held.set(), time.sleep(1000)), daemon=True).start()
        held.wait()
    rows = Rows(asked.kind, silent.getsockname())
    starts = start if asked.kind == "startup" else None
    collate = unsent if asked.kind == "unsent" else None
    workers = 0 if asked.kind == "alone" else 2
    loader = DataLoader(rows, batch_size=4, num_workers=workers, worker_init_fn=starts, collate_fn=collate)
    train(loader, torch.nn.Linear(16, 4))
    if asked.kind == "pauses":  # the second for a process, which works
        time.sleep(2.0)
        subprocess.run([sys.executable, "-c", "import time; end = time.time() + 7\nwhile time.time() < end: pass"])
    print("done", flush=True)


if __name__ == "__main__":
    main()
