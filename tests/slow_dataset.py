"""A dataset whose reads take a while and leave a note, for tests that end a process in the middle of them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from headrace.data import Dataset


@dataclass(frozen=True, eq=False, repr=False)
class SlowDataset(Dataset):
    log: str = ""
    """File of the keys read, each with the process that started the reader."""

    def read(self, column: str, index: Any, **how: Any) -> bytes:
        with open(self.log, "a") as log:
            log.write(f"{self.key(index)} {os.getppid()}\n")
        time.sleep(0.1)
        return super().read(column, index, **how)
