"""Work of set length, done where a real library does its own, so that the doctor must find it by its real hooks."""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from known_truth import stage
from PIL import Image, ImageFile


def sleep(seconds: float) -> None:
    """Waits, as for a disk: wall time without CPU time."""
    time.sleep(seconds)


def burn(seconds: float) -> None:
    """Computes: spins until this thread has had so much CPU time, however long that takes."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def repeat(seconds: float, call: Callable[[], object]) -> None:
    """A real call again and again for so long: the length of one depends on the machine."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        call()


class PacedDecoder(ImageFile.PyDecoder):
    """Called by Pillow from `ImageFile.load`, as its own decoders are; sleeps and burns, and leaves a black image."""

    _pulls_fd: ClassVar[bool] = True

    def decode(self, buffer: Any) -> tuple[int, int]:
        slept, burnt = self.args
        sleep(slept)
        burn(burnt)
        return -1, 0


class PacedImage(ImageFile.ImageFile):
    """A Pillow format whose files say how long it takes to decode them."""

    format = "PACED"
    _header = struct.Struct("<5sHdd")

    def _open(self) -> None:
        magic, side, slept, burnt = self._header.unpack(self.fp.read(self._header.size))
        if magic != b"PACED":
            raise SyntaxError("not a paced image")
        self._size = (side, side)
        self._mode = "L"
        self.tile = [ImageFile._Tile("paced", (0, 0, side, side), 0, (slept, burnt))]

    @classmethod
    def encoded(cls, side: int, *, slept: float = 0.0, burnt: float = 0.0) -> bytes:
        return cls._header.pack(b"PACED", side, slept, burnt)


Image.init()  # all formats now, or the first sample of each worker would be charged with importing them
Image.register_open(PacedImage.format, PacedImage, lambda prefix: prefix.startswith(b"PACED"))
Image.register_decoder("paced", PacedDecoder)


def decoded(data: bytes) -> np.ndarray[Any, Any]:
    """Decoded, and made an array of, which is no decoding."""
    with stage("decode"):
        image = Image.open(io.BytesIO(data))
        image.load()
    return np.array(image)


class PacedPickle:
    """Takes its time to be pickled, and some more to be made again from that."""

    def __init__(self, pickled: float, unpickled: float) -> None:
        self.pickled, self.unpickled = pickled, unpickled

    def __reduce__(self) -> tuple[Any, ...]:
        with stage("serialise"):
            burn(self.pickled)
        return _unpickle, (self.pickled, self.unpickled)


def _unpickle(pickled: float, unpickled: float) -> PacedPickle:
    burn(unpickled)
    return PacedPickle(pickled, unpickled)
