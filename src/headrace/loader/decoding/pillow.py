"""Decoding by Pillow, in this process or in one that an attack cannot leave."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data.pillow_images import TooLargeError, apart_formats, open_picture
from headrace.fields import Image

if TYPE_CHECKING:
    import PIL.Image


# -- from feed/pillow.py: Decodes by Pillow what the core declines (WebP, GIF, TIFF, CMYK JPEG, EXIF-turned images, …)
# to plain pixels.


OWN, OWN_ALPHA = "own", "own, with alpha"
"""Modes of a PictureForm beside Pillow's: the picture's channels, as `read_colors` has them."""


@dataclass(frozen=True)
class PictureForm:
    """What is to become of an image."""

    mode: str | None
    """As `Image.convert` has it; None: the values as they are."""
    exif: bool


def decode_picture(data: bytes, image: Image, limits: Limits) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] for mode "RGB", [H, W, 1] for "L"; of an animation the first frame.

    Raises ValueError (with what was expected) for what Pillow cannot decode, TooLargeError for what is beyond `limits`.
    """
    pixels = _decoded(data, PictureForm(image.mode, image.exif), limits)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1), np.uint8)


def read_colors(data: bytes, image: Image, limits: Limits) -> NDArray[np.generic]:
    """Return [H, W, C] of the picture's own channels. Raises as `decode` does.

    16-bit grey is uint16, floats are float32, and colours bytes, palettes looked up, with alpha where the picture has
    it and `image` has four channels.
    """
    values = _decoded(data, PictureForm(OWN_ALPHA if image.channel_count == 4 else OWN, image.exif), limits)
    return np.ascontiguousarray(values.reshape(*values.shape[:2], -1))


def _own_channels(picture: PIL.Image.Image, *, alpha: bool) -> NDArray[np.generic]:
    if picture.mode.startswith("I;16"):
        return np.asarray(picture, np.uint16)
    if picture.mode == "F":
        return np.asarray(picture, np.float32)
    if picture.mode == "I":
        return _words(np.asarray(picture))
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return np.asarray(picture)
    if picture.mode == "1":
        return np.asarray(picture.convert("L"))
    has_alpha = picture.mode == "PA" or "transparency" in picture.info
    return np.asarray(picture.convert("RGBA" if alpha and has_alpha else "RGB"))


def _words(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 0xFFFF:
        raise ValueError(f"expected values from 0 to 65535, got 32-bit ones from {low} to {high}")
    return values.astype(np.uint16)


def read_picture(data: bytes, limits: Limits) -> NDArray[np.generic]:
    """The values as they are, [H, W] or [H, W, C]: palette indices, 16-bit grey, floats; 1-bit grey as 0 and 255.

    Raises as `decode` does.
    """
    return _decoded(data, PictureForm(None, False), limits)


def _decoded(data: bytes, form: PictureForm, limits: Limits) -> NDArray[np.generic]:
    apart = apart_formats(data, limits)
    if apart:
        # which few need

        return decode_apart(data, form, apart, limits)
    return decode_here(data, form, limits)


def decode_here(
    data: bytes, form: PictureForm, limits: Limits, formats: Sequence[str] | None = None
) -> NDArray[np.generic]:
    """Decode the image in this thread. Raises as `decode` does, and MemoryError."""
    import PIL.Image

    try:
        with open_picture(data, limits, formats) as opened:
            return _taken(opened, form)
    except (MemoryError, TooLargeError):
        raise
    except PIL.Image.DecompressionBombError as error:
        raise TooLargeError(
            f"{error}: more than twice PIL.Image.MAX_IMAGE_PIXELS, which Pillow holds beside "
            f"max_pixels={limits.max_pixels}"
        ) from error
    except PIL.UnidentifiedImageError as error:  # its text holds an address of memory
        raise ValueError(
            f"expected an image, got bytes of no format that Pillow knows; first: {_begin(data)}"
        ) from error
    except Exception as error:  # Pillow's plugins raise anything (struct.error, EOFError, …) at damaged bytes
        raise ValueError(
            f"expected an image, got bytes that Pillow cannot decode ({error}); first: {_begin(data)}"
        ) from error


def _taken(opened: PIL.Image.Image, form: PictureForm) -> NDArray[np.generic]:
    import PIL.ImageOps

    if form.mode is None:
        return np.asarray(opened.convert("L") if opened.mode == "1" else opened)
    picture = PIL.ImageOps.exif_transpose(opened) if form.exif else opened
    if form.mode in (OWN, OWN_ALPHA):
        return _own_channels(picture, alpha=form.mode == OWN_ALPHA)
    return np.asarray(_eight_bit(picture).convert(form.mode))


def _begin(data: bytes) -> str:
    return data[:8].hex(" ")


def _eight_bit(picture: PIL.Image.Image) -> PIL.Image.Image:
    """16-bit grey by its high byte, as the core does; Pillow's own conversion would clip."""
    import PIL.Image

    if not picture.mode.startswith("I;16"):
        return picture
    return PIL.Image.fromarray((np.asarray(picture, np.uint16) >> 8).astype(np.uint8))


# -- from feed/decoder_process.py: Decoding by Pillow in a process apart, which is ended when it takes too long: a
# thread cannot be.
#
# For the formats whose decoders a small file can keep busy for hours, or until memory is full. A process serves one
# image
# at a time and stays for the next one; it ends with its parent, and by itself when nobody has asked for a while, or
# soon
# after its deadline where the parent was killed and cannot end it. What it gives back is numbers: nothing is
# unpickled.


IDLE_S = 20.0
"""Then a process ends."""
_GRACE_S = 5.0
"""How long after its deadline a process ends by itself, when its parent did not end it."""
_LONGEST_WAIT_S = 1e6
"""What poll() and timers can take; a deadline may be later, or infinite."""
_START = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the parent, with which this ends
sys.path[:] = json.loads(sys.argv[1])
from {0} import serve
serve()
"""
_PIXEL_BYTES, _OTHER_BYTES = 32, 2 << 30
"""Memory that a process may have for each pixel of `max_pixels` (OpenJPEG takes four a channel), and beside."""
_MOST_HEADER_BYTES = 1 << 16


class _DecoderProcess:
    def __init__(self) -> None:
        # -I: what the user's environment does to a Python (the doctor's probe, say) is not for this one.
        command = [sys.executable, "-I", "-c", _START.format(__name__), json.dumps([p for p in sys.path if p])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._read(1, None)  # it is ready

    def ask(self, request: dict[str, Any], data: bytes, deadline_s: float) -> tuple[dict[str, Any], bytes]:
        """Return the answer and its bytes. Raises TimeoutError, and EOFError where it has ended."""
        try:
            self._to.write(_packed(request, data))
            self._to.flush()
        except BrokenPipeError:
            raise EOFError from None
        stop = time.monotonic() + deadline_s
        answer = json.loads(self._read(int.from_bytes(self._read(4, stop), "little"), stop))
        return answer, self._read(answer["bytes"], stop)

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._to, self._from):
            with suppress(OSError):  # what was not sent
                pipe.close()

    def forget(self) -> None:
        """Give it up in a fork, whose child it is not: nothing is said of it when it goes out of use."""
        self._process.returncode = 0

    @property
    def why_ended(self) -> str:
        code = self._process.wait()
        return f"its decoder was ended by signal {-code}" if code < 0 else f"its decoder ended with status {code}"

    def _read(self, count: int, stop: float | None) -> bytes:
        """Raises TimeoutError, EOFError."""
        parts, descriptor = [], self._from.fileno()
        waiting = select.poll()  # other than select, of descriptors of any number
        waiting.register(descriptor, select.POLLIN)
        while count > 0:
            left = None if stop is None else max(0.0, stop - time.monotonic())
            if not waiting.poll(None if left is None else min(left, _LONGEST_WAIT_S) * 1000):
                if left is not None and left > _LONGEST_WAIT_S:
                    continue
                raise TimeoutError
            part = os.read(descriptor, min(count, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class _Processes:
    """Those that wait for work. A fork has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_DecoderProcess] = []

    def take(self) -> _DecoderProcess | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def give_back(self, process: _DecoderProcess) -> None:
        with self._lock:
            self._free.append(process)

    def end(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for process in free:
            process.end()

    def forget(self) -> None:
        """Give all of them up in a fork: they are its parent's, and the lock may be held for good."""
        for process in self._free:
            process.forget()
        self._lock, self._free = threading.Lock(), []


_PROCESSES = _Processes()
end_processes = _PROCESSES.end
atexit.register(end_processes)
os.register_at_fork(after_in_child=_PROCESSES.forget)


def decode_apart(data: bytes, form: PictureForm, formats: Sequence[str], limits: Limits) -> NDArray[np.generic]:
    """Decode the image as one of `formats`. Raises TooLargeError beyond `limits`, ValueError where that fails."""
    request = {
        "mode": form.mode,
        "exif": form.exif,
        "formats": list(formats),
        "deadline_s": min(limits.max_decode_s, _LONGEST_WAIT_S),
        "limits": {"max_pixels": limits.max_pixels, "formats": list(limits.formats)},
    }
    answer, pixels = _answered(request, data, limits.max_decode_s, formats)
    match answer:
        case {"shape": list(shape), "dtype": str(dtype)}:
            return np.frombuffer(pixels, dtype).reshape(shape)
        case {"limit": str(why)}:
            raise TooLargeError(why)
    raise ValueError(answer["error"])


def _answered(
    request: dict[str, Any], data: bytes, deadline_s: float, formats: Sequence[str]
) -> tuple[dict[str, Any], bytes]:
    waiting = _PROCESSES.take()
    if waiting is not None:
        # One that waits may have ended: nobody asked for a while, or memory was short. That is not this image's fault.
        with suppress(EOFError):
            return _served(waiting, request, data, deadline_s, formats)
    fresh = _DecoderProcess()
    try:
        return _served(fresh, request, data, deadline_s, formats)
    except EOFError:
        raise ValueError(f"expected an image, got bytes at which {fresh.why_ended}") from None


def _served(
    process: _DecoderProcess, request: dict[str, Any], data: bytes, deadline_s: float, formats: Sequence[str]
) -> tuple[dict[str, Any], bytes]:
    sound = False
    try:
        answer = process.ask(request, data, deadline_s)
        sound = True
        return answer
    except TimeoutError:
        raise TooLargeError(
            f"{' or '.join(formats)} whose decoding took longer than max_decode_s={deadline_s:g}"
        ) from None
    finally:
        if sound:
            _PROCESSES.give_back(process)
        else:
            process.end()


def _packed(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header | {"bytes": len(data)}).encode()
    return len(text).to_bytes(4, "little") + text + data


# --- in the process itself ---


def serve() -> None:
    """Answer requests of the parent until that ends, or has not asked for a while."""
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the timer ends a decoder that never comes back to Python
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    outgoing.write(b"!")
    outgoing.flush()
    with suppress(BrokenPipeError):  # the parent has ended meanwhile
        while select.select([incoming], [], [], IDLE_S)[0]:
            lead = incoming.read(4)
            if len(lead) < 4:
                return
            request = json.loads(incoming.read(int.from_bytes(lead, "little")))
            data = incoming.read(request["bytes"])
            signal.setitimer(signal.ITIMER_REAL, request["deadline_s"] + _GRACE_S)
            _answer(request, data, outgoing)
            signal.setitimer(signal.ITIMER_REAL, 0)


def _answer(request: dict[str, Any], data: bytes, outgoing: BinaryIO) -> None:
    limits = Limits(**request["limits"])
    _bound_memory(limits)
    pixels = b""
    try:
        found = decode_here(data, PictureForm(request["mode"], request["exif"]), limits, request["formats"])
        answer: dict[str, Any] = {"shape": found.shape, "dtype": found.dtype.str}
        pixels = found.tobytes()
    except TooLargeError as error:
        answer = {"limit": str(error)}
    except MemoryError:
        answer = {"limit": f"its decoder wanted more memory than images of max_pixels={limits.max_pixels} take"}
    except ValueError as error:
        answer = {"error": str(error)[:_MOST_HEADER_BYTES]}
    outgoing.write(_packed(answer, pixels))
    outgoing.flush()


def _bound_memory(limits: Limits) -> None:
    import resource

    wanted = min(_OTHER_BYTES + _PIXEL_BYTES * limits.max_pixels, sys.maxsize)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))
