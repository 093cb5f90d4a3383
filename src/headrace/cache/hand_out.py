"""One piece of anonymous memory for all processes of a node that ask for it by the same name.

The first one makes it, and hands its descriptor to the others over a socket in Linux's abstract namespace, which is no
file and ends with its process: nothing can be left behind, and `/dev/shm` is not used. The memory lives on with those
who have it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from headrace.system.forks import close_in_forks
from headrace.threads import THREAD_PREFIX

_WAIT_S = 5.0
"""For an answer. Whoever listens does nothing else."""
_PASSING = (errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors after which the next one who asks may be answered: this process may have closed some files by then."""
_PAUSE_S = 0.05
_CREDENTIALS = struct.Struct("3i")


class HandOut:
    """Hands a descriptor to every process of this user that asks, until it is closed."""

    def __init__(self, listening: socket.socket, descriptor: int) -> None:
        self._socket = listening
        self._descriptor = descriptor
        self._owner = os.getpid()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"{THREAD_PREFIX}cache", daemon=True)
        close_in_forks(self)
        self._thread.start()

    def close(self) -> None:
        if os.getpid() != self._owner:  # the thread is the parent's, and must not hear of this
            self._socket.close()
            return
        self._closing.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                asking, _ = self._socket.accept()
            except OSError as error:
                if error.errno not in _PASSING or self._closing.wait(_PAUSE_S):
                    return
                continue
            with asking, suppress(OSError):
                if _peer_user(asking) == os.getuid():
                    socket.send_fds(asking, [b"1"], [self._descriptor])


def shared_descriptor(name: str, make: Callable[[], int]) -> tuple[int, HandOut | None]:
    """A descriptor of the memory of that name, owned by the caller, and what hands it out if this process made it.

    Where another user has taken the name, who has it does not answer, or the system has no such sockets, the memory is
    this process's own.
    Raises what `make` raises.
    """
    address = f"\0headrace-cache-{os.getuid()}-{name}"
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            listening = _listen(address)
        except OSError:
            return make(), None
        if listening is not None:
            return _made(listening, make)
        found = _ask(address)
        if found is not None:
            return found, None
        if time.monotonic() > until:
            return make(), None
        time.sleep(0.01)  # its owner has bound it and does not listen yet, or has just ended


def _made(listening: socket.socket, make: Callable[[], int]) -> tuple[int, HandOut]:
    """Whoever asks meanwhile waits in the socket's queue."""
    try:
        descriptor = make()
        return descriptor, HandOut(listening, descriptor)
    except BaseException:
        listening.close()
        raise


def _listen(address: str) -> socket.socket | None:
    """None where somebody else does. Raises OSError where nobody can."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return listening


def _ask(address: str) -> int | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_WAIT_S)
        try:
            asking.connect(address)
            if _peer_user(asking) != os.getuid():
                return None
            _, descriptors, _, _ = socket.recv_fds(asking, 1, 1)
        except OSError:
            return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return descriptors[0] if descriptors else None


def _peer_user(connection: socket.socket) -> int:
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[1])
