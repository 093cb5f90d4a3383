"""JPEGs decoded on the device by nvImageCodec, a region of each, and resampled there as the core does."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headrace.errors import UsageError

_BEGIN, _END = b"\xff\xd8", b"\xff\xd9"
_MOST_TRAILING_BYTES = 1 << 16
"""Maximum bytes after a JPEG's end marker."""
_idle: defaultdict[tuple[torch.device, int], list[Any]] = defaultdict(list)
"""Decoders with their buffers, for the next passes."""
_MOST_FLOATS = 1 << 25
"""Maximum floats of the regions that are resampled together."""


class ImageDecoder:
    """Decoder of JPEGs to one device. Without CUDA it uses nvImageCodec's CPU backend, which is for tests.

    JPEGs that nvJPEG's hardware engine can take are decoded there, others by the CPU and the GPU together. The engine
    writes at once, even to memory that queued work has still to read (pytorch/vision#9606). So every call returns once
    the device is done, and nothing is queued on the memory of decoded regions, which torch's allocator does not share.
    """

    def __init__(self, device: torch.device, *, threads: int) -> None:
        """Raises UsageError for a device that nvImageCodec does not know, and if it is not installed."""
        if device.type not in ("cpu", "cuda"):
            raise UsageError(f"decode='device': expected device='cuda' with it, got {str(device)!r}; leave out decode")
        self._codec = _nvimgcodec()
        self.device = device
        is_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if is_cuda else None
        idle = _idle[device, threads]
        try:
            self._decoder = idle.pop()
        except IndexError:
            kinds = [self._codec.HW_GPU_ONLY, self._codec.HYBRID_CPU_GPU] if is_cuda else []
            self._decoder = self._codec.Decoder(
                device_id=device.index if is_cuda else self._codec.NVIMGCODEC_DEVICE_CPU_ONLY,
                max_num_cpu_threads=threads,
                backends=[self._codec.Backend(kind) for kind in (*kinds, self._codec.CPU_ONLY)],
                options=":fancy_upsampling=1",  # as libjpeg-turbo does by default
            )
        weakref.finalize(self, idle.append, self._decoder).atexit = False
        self._params = self._codec.DecodeParams(
            apply_exif_orientation=False, color_spec=self._codec.SRGB, sample_format=self._codec.I_RGB
        )

    def opened(self, encoded: bytes) -> Any | None:
        """Return a JPEG of 8 bits and one or three channels as a code stream; None for anything else.

        A file without an end is left to the core as well: above the cut, the device would decode it.
        """
        if not encoded.startswith(_BEGIN) or encoded.rfind(_END, -_MOST_TRAILING_BYTES) < 0:
            return None
        try:
            stream = self._codec.CodeStream(encoded)
            return stream if stream.precision == 8 and stream.num_channels in (1, 3) else None
        except RuntimeError:  # its header is damaged
            return None

    def decode(
        self, streams: Sequence[Any], windows: Tensor, bounds: Tensor, flips: Tensor, size: tuple[int, int]
    ) -> tuple[Tensor, list[bool]]:
        """Return uint8 [N, 3, height, width] on the device, and for each image whether it was decoded.

        `windows` is float64 [N, 4], x0, y0, x1, y1 in the image; `bounds` is int64 [N, 4], left, top, right, bottom of
        the pixels that filter taps may reach; `flips` is bool [N, 2], horizontal and vertical.
        """
        regions = _regions(windows, bounds, size)
        asked = [
            stream.get_sub_code_stream(region=self._codec.Region(top, left, bottom, right))
            for stream, (left, top, right, bottom) in zip(streams, regions.tolist(), strict=True)
        ]
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream), torch.no_grad():
            handle = 0 if self._stream is None else self._stream.cuda_stream
            decoded = self._decoder.decode(asked, params=self._params, cuda_stream=handle)
            found = [at for at, image in enumerate(decoded) if image is not None]
            images = torch.zeros((len(streams), 3, *size), dtype=torch.uint8, device=self.device)
            pixels = [self._pixels(decoded[at]) for at in found]
            origin = regions[found, :2].repeat(1, 2)
            windows, bounds = windows[found] - origin, bounds[found] - origin
            for chosen, made in _resampled(pixels, windows, bounds, flips[found], size):
                images[[found[at] for at in chosen]] = made
            if self._stream is not None:
                self._stream.synchronize()
        return images, [image is not None for image in decoded]

    def _pixels(self, image: Any) -> Tensor:
        """Return a decoded image [h, w, 3] without copying it."""
        if self._stream is None:  # its DLPack capsule needs a CUDA driver even for memory of the host
            return torch.from_numpy(np.asarray(image))
        return torch.as_tensor(image, device=self.device)


def _regions(windows: Tensor, bounds: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the pixels that each window's filter reads: left, top, right, bottom, int64 [N, 4]."""
    sides = torch.tensor([size[1], size[0]], dtype=torch.float64)
    reach = ((windows[:, 2:] - windows[:, :2]) / sides).clamp(min=1) + 1
    first = (windows[:, :2] - reach).floor().long().maximum(bounds[:, :2])
    return torch.cat([first, (windows[:, 2:] + reach).ceil().long().minimum(bounds[:, 2:])], 1)


def _resampled(
    pixels: Sequence[Tensor], windows: Tensor, bounds: Tensor, flips: Tensor, size: tuple[int, int]
) -> list[tuple[list[int], Tensor]]:
    """Resample regions [h, w, 3] with an antialiased bilinear filter, in groups of bounded memory."""
    order = sorted(range(len(pixels)), key=lambda at: pixels[at].shape[0] * pixels[at].shape[1])
    groups: list[tuple[list[int], Tensor]] = []
    while order:
        largest = pixels[order[-1]].shape
        count = max(1, _MOST_FLOATS // (3 * largest[0] * largest[1]))
        group, order = order[-count:], order[:-count]
        device = pixels[group[0]].device
        tall, wide = (max(pixels[at].shape[axis] for at in group) for axis in (0, 1))
        canvas = torch.zeros((len(group), 3, tall, wide), device=device)
        for place, at in enumerate(group):
            height, width = pixels[at].shape[:2]
            canvas[place, :, :height, :width] = pixels[at].permute(2, 0, 1)
        of_group = (each[group].to(device) for each in (windows, bounds, flips))
        window, bound, flip = of_group
        down = _weights(window[:, 1::2], bound[:, 1::2], flip[:, 1], size[0], tall)
        across = _weights(window[:, 0::2], bound[:, 0::2], flip[:, 0], size[1], wide)
        values = down[:, None] @ canvas @ across[:, None].transpose(2, 3)
        groups.append((group, (values + 0.5).floor().clamp(0, 255).to(torch.uint8)))
    return groups


def _weights(span: Tensor, bound: Tensor, is_flipped: Tensor, count: int, length: int) -> Tensor:
    """Return the filter's weights, float32 [N, count, length], as Pillow's BILINEAR has them.

    `span` is the window's begin and end on this axis, `bound` the first pixel that a tap may reach and one beyond the
    last, both within the region of `length` pixels.
    """
    begin, end = (span[:, k, None] for k in range(2))
    at = torch.arange(count, dtype=torch.float64, device=span.device) + 0.5
    at = torch.where(is_flipped[:, None], count - at, at)
    scale = (end - begin) / count
    support = scale.clamp(min=1)
    centre = begin + at * scale
    first = (centre - support + 0.5).floor().maximum(bound[:, :1])
    last = (centre + support + 0.5).floor().minimum(bound[:, 1:])
    places = torch.arange(length, dtype=torch.float64, device=span.device)
    distance = (places + 0.5 - centre[..., None]).abs() / support[..., None]
    inside = (places >= first[..., None]) & (places < last[..., None])
    weights = torch.where(inside, (1 - distance).clamp(min=0), 0.0)
    return (weights / weights.sum(2, keepdim=True)).float()


def _nvimgcodec() -> Any:
    try:
        from nvidia import nvimgcodec  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(
            "decode='device' needs nvImageCodec: pip install nvidia-nvimgcodec-cu12[all], or -cu13 for CUDA 13; or "
            "leave decode out"
        ) from error
    return nvimgcodec
