"""What a worker hears from its parent: messages, and that nobody will send any more."""

from __future__ import annotations

import os
import pickle
import threading
import time
from multiprocessing.connection import Connection
from queue import SimpleQueue

from headrace.feed.map_workers.messages import Places, ToWorker, Work

LEAVE_S = 5.0
"""How long a call of the user's map may go on once the parent has gone or closed the pass."""


class Inbox:
    """Reads the connection in a thread, so that the parent's end is heard of in the midst of the user's map."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._places: SimpleQueue[Places | None] = SimpleQueue()
        self.ended = False
        threading.Thread(target=self._read, name="headrace-inbox", daemon=True).start()

    def work(self) -> Work | None:
        """The next batch; None once there will be no more, or nobody wants it."""
        work = self._work.get()
        return None if self.ended else work

    def places(self) -> Places | None:
        """What was asked for; None once nobody will answer."""
        return self._places.get()

    def _read(self) -> None:
        try:
            while True:
                message: ToWorker = pickle.loads(self._connection.recv_bytes())
                if isinstance(message, Work):
                    self._work.put(message)
                else:
                    self._places.put(message)
        except (EOFError, OSError):
            self.ended = True
            self._work.put(None)
            self._places.put(None)
        # A killed parent cannot end its workers, and one that hangs in the user's map would outlive it.
        time.sleep(LEAVE_S)
        os._exit(1)
