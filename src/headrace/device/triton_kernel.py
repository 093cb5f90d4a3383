"""Triton kernel that normalises bytes; importing this module requires Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]  # Triton need not be installed
def normalise_bytes(  # type: ignore  # Triton reads annotations as its own
    image,
    out,
    total,
    pixels,
    subtract0,
    subtract1,
    subtract2,
    subtract3,
    divide0,
    divide1,
    divide2,
    divide3,
    CHANNELS: tl.constexpr,  # noqa: N803  # Triton's custom for what it compiles in
    IMAGE_LAST: tl.constexpr,  # noqa: N803
    OUT_LAST: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Compute `out[i] = (image[j] - subtract[c]) / divide[c]`.

    i follows the order of out's memory, so that writes are whole lines; j is the same element in the image's memory.
    Division is correctly rounded: the bits equal the CPU's. Only the block's start takes 64 bits: division of 64-bit
    integers would cost more than all else.
    """
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    if OUT_LAST:
        along = (start % CHANNELS).to(tl.int32) + offset  # from the start of the first pixel
        channel = along % CHANNELS
        pixel = start // CHANNELS + along // CHANNELS
    else:
        along = (start % pixels).to(tl.int32) + offset  # from the start of the first plane
        channel = ((start // pixels % CHANNELS).to(tl.int32) + along // pixels) % CHANNELS
        plane = start // pixels + along // pixels
        pixel = plane // CHANNELS * pixels + along % pixels
    if IMAGE_LAST == OUT_LAST:
        j = start + offset
    elif IMAGE_LAST:
        j = pixel * CHANNELS + channel
    else:
        j = (pixel // pixels * CHANNELS + channel) * pixels + pixel % pixels
    inside = start + offset < total
    value = tl.load(image + j, mask=inside, other=0).to(tl.float32)
    subtract = tl.where(channel == 0, subtract0, subtract1)
    divide = tl.where(channel == 0, divide0, divide1)
    if CHANNELS > 2:
        subtract = tl.where(channel < 2, subtract, tl.where(channel == 2, subtract2, subtract3))
        divide = tl.where(channel < 2, divide, tl.where(channel == 2, divide2, divide3))
    result = tl.math.div_rn(value - subtract, divide)
    tl.store(out + start + offset, result.to(out.dtype.element_ty), mask=inside)
