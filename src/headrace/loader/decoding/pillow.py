"""Decoding with Pillow, in this process or in a separate process, which is killed when it takes too long.

A small file can keep some formats' decoders busy for hours, or until memory is full. A separate process decodes these
formats, since a thread cannot be killed. It serves one image at a time and waits for the next one. It ends with its
parent, after some idle time, or soon after its deadline if the parent was killed. It returns numbers: nothing is
unpickled.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data import TooLargeError, apart_formats, open_picture, orientation_of, turned
from headrace.fields import Image, Spatial

if TYPE_CHECKING:
    import PIL.Image


OWN, OWN_ALPHA = "own", "own, with alpha"
"""Modes of a PictureForm in addition to Pillow's: the picture's own channels, as `read_colors` returns them."""


@dataclass(frozen=True)
class PictureForm:
    """Target form of a decoded image."""

    mode: str | None
    """Mode for `Image.convert`; None leaves the values unchanged."""
    exif: bool
    background: Sequence[int] | None = None
    """Colour over which a transparent image is composited; None drops its alpha."""


def decode_picture(data: bytes, image: Image, limits: Limits) -> NDArray[np.uint8]:
    """Decode to uint8 [H, W, 3] for mode "RGB" or [H, W, 1] for "L"; of an animation, the first frame.

    Raises ValueError (with the expected content) if Pillow cannot decode it, TooLargeError beyond `limits`.
    """
    pixels = _decoded(data, PictureForm(image.mode, image.exif, image.background), limits)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1), np.uint8)


def read_colors(data: bytes, image: Image, limits: Limits) -> NDArray[np.generic]:
    """Return [H, W, C] of the picture's own channels. Raises as `decode_picture` does.

    16-bit grey is uint16, floats are float32, and colours are bytes. Palettes are resolved. Alpha is included if the
    picture has it and `image` has four channels.
    """
    values = _decoded(data, PictureForm(OWN_ALPHA if image.channel_count == 4 else OWN, image.exif), limits)
    return np.ascontiguousarray(values.reshape(*values.shape[:2], -1))


def _own_channels(picture: PIL.Image.Image, *, alpha: bool) -> NDArray[np.generic]:
    if picture.mode.startswith("I;16"):
        return np.asarray(picture, np.uint16)
    if picture.mode == "F":
        return np.asarray(picture, np.float32)
    if picture.mode == "I":
        values = np.asarray(picture)
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 0xFFFF:
            raise ValueError(f"expected values from 0 to 65535, got 32-bit ones from {low} to {high}")
        return values.astype(np.uint16)
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return np.asarray(picture)
    if picture.mode == "1":
        return np.asarray(picture.convert("L"))
    has_alpha = picture.mode == "PA" or "transparency" in picture.info
    return np.asarray(picture.convert("RGBA" if alpha and has_alpha else "RGB"))


def read_picture(data: bytes, field: Spatial, limits: Limits) -> NDArray[np.generic]:
    """Read the values unchanged, [H, W] or [H, W, C]: palette indices, 16-bit grey, floats; 1-bit grey as 0 and 255.

    Raises as `decode_picture` does.
    """
    return _decoded(data, PictureForm(None, field.exif), limits)


def _decoded(data: bytes, form: PictureForm, limits: Limits) -> NDArray[np.generic]:
    apart = apart_formats(data, limits)
    return decode_apart(data, form, apart, limits) if apart else decode_here(data, form, limits)


def decode_here(
    data: bytes, form: PictureForm, limits: Limits, formats: Sequence[str] | None = None
) -> NDArray[np.generic]:
    """Decode the image in this thread. Raises as `decode_picture` does, and MemoryError."""
    import PIL.Image

    begin = f"first: {data[:8].hex(' ')}"
    try:
        with open_picture(data, limits, formats) as opened:
            return _converted(opened, form)
    except (MemoryError, TooLargeError):
        raise
    except PIL.Image.DecompressionBombError as error:
        raise TooLargeError(
            f"{error}: more than twice PIL.Image.MAX_IMAGE_PIXELS, which Pillow holds beside "
            f"max_pixels={limits.max_pixels}"
        ) from error
    except PIL.UnidentifiedImageError as error:  # its message contains a memory address
        raise ValueError(f"expected an image, got bytes of no format that Pillow knows; {begin}") from error
    except Exception as error:  # Pillow's plugins raise anything (struct.error, EOFError, …) at damaged bytes
        raise ValueError(f"expected an image, got bytes that Pillow cannot decode ({error}); {begin}") from error


def _converted(opened: PIL.Image.Image, form: PictureForm) -> NDArray[np.generic]:
    opened.load()  # turns a TIFF, and removes its orientation
    values = _values(opened, form.mode) if form.background is None else _composited(opened, form)
    return turned(values, orientation_of(opened)) if form.exif else values


def is_transparent(picture: PIL.Image.Image) -> bool:
    """Return True if an opened image has an alpha channel, or a transparent colour."""
    return picture.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in picture.info


def _composited(picture: PIL.Image.Image, form: PictureForm) -> NDArray[np.generic]:
    import PIL.Image

    if not is_transparent(picture) or picture.mode.startswith("I"):
        return _values(picture, form.mode)
    canvas = PIL.Image.new("RGBA", picture.size, (*form.background, 255))  # type: ignore[misc]  # not None here
    canvas.alpha_composite(picture.convert("RGBA"))
    return _values(canvas.convert("RGB"), form.mode)


def _values(picture: PIL.Image.Image, mode: str | None) -> NDArray[np.generic]:
    import PIL.Image

    if mode is None:
        return np.asarray(picture.convert("L") if picture.mode == "1" else picture)
    if mode in (OWN, OWN_ALPHA):
        return _own_channels(picture, alpha=mode == OWN_ALPHA)
    if picture.mode.startswith("I;16"):  # the high byte, as in the core; Pillow's own conversion would clip
        picture = PIL.Image.fromarray((np.asarray(picture, np.uint16) >> 8).astype(np.uint8))
    return np.asarray(picture.convert(mode))


IDLE_S = 20.0
"""Idle time after which a process ends."""
_GRACE_S = 5.0
"""Time after its deadline at which a process ends by itself if its parent has not ended it."""
_EXIT_S = 1.0
_LONGEST_WAIT_S = 1e6
"""Longest wait that poll() and timers accept; a deadline may be later, or infinite."""
_START = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the parent, with which this ends
sys.path[:] = json.loads(sys.argv[1])
from {0} import serve
serve(int(sys.argv[2]))
"""
_OTHER_BYTES = 2 << 30
"""Memory that a process may use in addition to `max_decode_bytes`: its own code, and its answer."""
_MOST_HEADER_BYTES = 1 << 16


class _DecoderProcess:
    def __init__(self) -> None:
        from multiprocessing import Pipe  # slow to import

        self._connection, theirs = Pipe()
        with theirs:
            # -I: the user's environment (such as the doctor's probe) must not affect this Python.
            command = [sys.executable, "-I", "-c", _START.format(__name__), json.dumps([p for p in sys.path if p])]
            descriptor = theirs.fileno()
            # A library's output goes to stderr.
            self._process = subprocess.Popen(
                [*command, str(descriptor)], stdin=subprocess.DEVNULL, stdout=2, pass_fds=[descriptor]
            )
        self._connection.recv_bytes(1)  # ready

    def ask(self, request: dict[str, Any], data: bytes, deadline_s: float) -> tuple[dict[str, Any], bytes]:
        """Return the answer and its bytes. Raises TimeoutError, and EOFError if the process has ended."""
        limits = request["limits"]
        try:
            self._connection.send_bytes(json.dumps(request).encode())
            self._connection.send_bytes(data)
            if self._connection.poll(min(deadline_s, _LONGEST_WAIT_S)):
                answer = json.loads(self._connection.recv_bytes(16 * _MOST_HEADER_BYTES))
                return answer, self._connection.recv_bytes(_OTHER_BYTES + limits["max_decode_bytes"])
        except OSError as error:
            raise EOFError from error
        raise TimeoutError

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def forget(self) -> None:
        """Drop a process of a fork's parent, so that its garbage collection raises no warning."""
        self._process.returncode = 0

    def why_ended(self) -> str:
        """Return how a process ended that has closed its connection. It may take a moment to exit by itself."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S)
        self.end()
        code = self._process.returncode
        return f"its decoder was ended by signal {-code}" if code < 0 else f"its decoder ended with status {code}"


_waiting: list[_DecoderProcess] = []
"""Processes that wait for work. Threads pop and append single items, which is atomic for a list."""


def end_processes() -> None:
    while _waiting:
        _waiting.pop().end()


def _forget_processes() -> None:
    """Drop all processes in a fork: they belong to its parent."""
    while _waiting:
        _waiting.pop().forget()


atexit.register(end_processes)
os.register_at_fork(after_in_child=_forget_processes)


def decode_apart(data: bytes, form: PictureForm, formats: Sequence[str], limits: Limits) -> NDArray[np.generic]:
    """Decode the image as one of `formats`. Raises TooLargeError beyond `limits`, ValueError if decoding fails."""
    request = {
        "form": asdict(form),
        "formats": list(formats),
        "deadline_s": min(limits.max_decode_s, _LONGEST_WAIT_S),
        "limits": {
            "max_pixels": limits.max_pixels,
            "max_decode_bytes": limits.max_decode_bytes,
            "formats": list(limits.formats),
        },
    }
    try:
        answer, pixels = _asked(request, data, limits.max_decode_s)
    except TimeoutError:
        raise TooLargeError(
            f"{' or '.join(formats)} whose decoding took longer than max_decode_s={limits.max_decode_s:g}"
        ) from None
    match answer:
        case {"shape": list(shape), "dtype": str(dtype)}:
            return np.frombuffer(pixels, dtype).reshape(shape)
        case {"limit": str(why)}:
            raise TooLargeError(why)
    raise ValueError(answer["error"])


def _asked(request: dict[str, Any], data: bytes, deadline_s: float) -> tuple[dict[str, Any], bytes]:
    """Return the answer of a waiting process or a new one. Raises TimeoutError, and ValueError if it ends."""
    try:
        process, is_fresh = _waiting.pop(), False
    except IndexError:
        process, is_fresh = _DecoderProcess(), True
    try:
        answer = process.ask(request, data, deadline_s)
    except EOFError:
        why = process.why_ended()
        if is_fresh:
            raise ValueError(f"expected an image, got bytes at which {why}") from None
        # A waiting process may have ended from idleness or lack of memory. The image is not at fault.
        return _asked(request, data, deadline_s)
    except BaseException:
        process.end()
        raise
    _waiting.append(process)
    return answer


# --- in the decoder process ---


def serve(descriptor: int) -> None:
    """Answer the parent's requests until the parent ends, or has sent none for a while."""
    from multiprocessing.connection import Connection

    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the timer ends a decoder that never comes back to Python
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    with Connection(descriptor) as parent, suppress(EOFError, OSError):  # the parent has ended
        parent.send_bytes(b"!")
        while parent.poll(IDLE_S):
            request, data = json.loads(parent.recv_bytes()), parent.recv_bytes()
            signal.setitimer(signal.ITIMER_REAL, request["deadline_s"] + _GRACE_S)
            answer, pixels = _answer(request, data)
            parent.send_bytes(json.dumps(answer).encode())
            parent.send_bytes(pixels)
            signal.setitimer(signal.ITIMER_REAL, 0)


def _answer(request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    import resource

    limits = Limits(**request["limits"])
    wanted = min(_OTHER_BYTES + limits.max_decode_bytes, sys.maxsize)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))
    try:
        found = decode_here(data, PictureForm(**request["form"]), limits, request["formats"])
        return {"shape": found.shape, "dtype": found.dtype.str}, found.tobytes()
    except TooLargeError as error:
        return {"limit": str(error)}, b""
    except MemoryError:
        return {"limit": f"its decoder wanted more memory than max_decode_bytes={limits.max_decode_bytes}"}, b""
    except ValueError as error:
        return {"error": str(error)[:_MOST_HEADER_BYTES]}, b""
