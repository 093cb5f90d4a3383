"""Runs a script on two ranks, as torchrun does, without the two seconds of CPU time of importing torch for that.

    rank_launcher.py SCRIPT [ARGUMENTS]

When a rank fails, the other is ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time


def main(command: list[str]) -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, *command], env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank})
        for rank in "01"
    ]
    while None in (found := [rank.poll() for rank in ranks]) and not any(found):
        time.sleep(0.02)
    for rank in ranks if any(found) else []:
        rank.terminate()
    return max(abs(rank.wait()) for rank in ranks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
