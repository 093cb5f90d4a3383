"""What of a Loader's fields is done on the host, and what on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from headrace.device.conversion import Conversion
from headrace.device.image_conversion import NamedImages
from headrace.device.lanes import Lane, lane_to, resolve
from headrace.fields import Field, Image


@dataclass(frozen=True)
class Placement:
    """`fields` as the host makes them; `conversions` is what the device adds to those of the same name."""

    device: torch.device
    fields: Mapping[str, Field]
    conversions: Mapping[str, Conversion]

    @property
    def pinned(self) -> bool:
        """Whether batches are made in pinned memory."""
        return self.device.type == "cuda"

    def lane(self) -> Lane:
        return lane_to(self.device, NamedImages(dict(self.conversions.items())))


def place(device: str | torch.device, fields: Mapping[str, Field], *, host_floats: bool) -> Placement:
    """Images of floats go over the bus as bytes, a quarter or half of the size, and become floats on the device.

    `host_floats`: something on the host (the user's `map`) has to see the floats. Raises UsageError for a device that
    is not here.
    """
    found = resolve(device)
    on_host, conversions = dict(fields), {}
    if found.type != "cpu" and not host_floats:
        for name, field in fields.items():
            if isinstance(field, Image) and field.dtype != "uint8" and field.dtype != "uint16" and not field.wide:
                on_host[name] = replace(field, dtype="uint8", normalize=None)
                conversions[name] = Conversion(field.dtype, field.normalize, field.channels_last)
    return Placement(found, on_host, conversions)
