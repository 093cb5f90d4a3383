"""`augment_on="device"`: colour operations that a device runs, and their draws on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from headrace import _core
from headrace.augment import (
    AFFINE,
    AUGMIX,
    CHAINS,
    ELASTIC,
    PERSPECTIVE,
    AugmentProgram,
    BatchedChains,
    DrawnChain,
    compile_augment,
)
from headrace.errors import UsageError
from headrace.fields import Field, Image
from headrace.loader.batch_values import BatchRows
from headrace.loader.decoding.pixels import name_hash

AugmentOn: TypeAlias = Literal["cpu", "device", "device-compiled"]

AUGMENT_ON: tuple[AugmentOn, ...] = ("cpu", "device", "device-compiled")

_CPU_ALONE = {
    AUGMIX: "AugMix",
    AFFINE: "affine maps (RandomAffine, RandomRotation, shear, translation)",
    PERSPECTIVE: "RandomPerspective",
    ELASTIC: "ElasticTransform",
}


@dataclass(frozen=True)
class DeviceAugment:
    """Colour operations on a Loader's images that the device runs, with the core's draws."""

    sample: AugmentProgram | None
    fields: Mapping[str, Image]
    """Image fields as the user declared them, augmentations included."""
    compiled: bool

    def on_host(self, fields: Mapping[str, Field]) -> dict[str, Field]:
        """Return the fields as the core makes them: cut, but not augmented."""
        bare: dict[str, Field] = {name: replace(image, augment=None) for name, image in self.fields.items()}
        return dict(fields) | bare

    def notes(self, batch: Mapping[str, Any], rows: BatchRows) -> dict[str, BatchedChains]:
        """Return the device's instructions, by their names in the batch."""
        return {
            CHAINS + name: _as_tensors(
                BatchedChains.of(self._chains(name, image, batch[name], rows), compiled=self.compiled)
            )
            for name, image in self.fields.items()
        }

    def _chains(self, name: str, image: Image, pixels: Any, rows: BatchRows) -> Sequence[DrawnChain]:
        """Return the chain of each image: all copies of the first sample, then all copies of the second, and so on."""
        height, width = pixels.shape[-2:]
        own = compile_augment(name, image.augment)
        sample, of_field = (None if program is None else program.native for program in (self.sample, own))
        field_key = _core.hash64(rows.key, name_hash(name))
        keys = [_core.hash64(field_key, copy) for copy in range(image.copy_count or 1)]
        chains: list[DrawnChain] = []
        for id_, pass_ in zip(rows.draw_ids.tolist(), rows.passes.tolist(), strict=True):
            for key in keys:  # same draws as core/batch/sample_worker.cpp
                chain: list[tuple[int, list[float]]] = []
                if sample is not None:
                    under = _core.hash64(key, 1) if image.draws_view else rows.key
                    chain += _core.draw_chain(sample, under, id_, pass_, width=width, height=height)
                if of_field is not None:
                    chain += _core.draw_chain(of_field, key, id_, pass_, width=width, height=height)
                chains.append(chain)
        return chains


def resolve_device_augment(
    augment_on: AugmentOn,
    augment: AugmentProgram | None,
    fields: Mapping[str, Field],
    *,
    device: object,
    python: bool,
) -> DeviceAugment | None:
    """Return the device's augmentations; None if there are none. `python`: Python code on the host needs the images.

    Raises UsageError that names the operations a device cannot run.
    """
    if augment_on not in AUGMENT_ON:
        raise UsageError(f"augment_on: expected one of {AUGMENT_ON}, got {augment_on!r}")
    if augment_on == "cpu":
        return None
    if device is None:
        raise UsageError(f'augment_on: expected device= with {augment_on!r}, such as device="cuda", got None')
    if python:
        raise UsageError(
            f"augment_on: expected 'cpu' with map= or batch_map=, which are given augmented images, got {augment_on!r}"
        )
    images = {}
    for name, field in fields.items():
        if not isinstance(field, Image):
            continue
        own = compile_augment(name, field.augment)
        for where, program in (("augment", augment), (f"field {name!r}: augment", own)):
            _check_kinds(where, program)
        if own is not None or augment is not None:
            images[name] = field
    return DeviceAugment(augment, images, augment_on == "device-compiled") if images else None


def _check_kinds(where: str, program: AugmentProgram | None) -> None:
    if program is None:
        return
    kinds = program.kinds | {int(kind) for kind in program.table[:, 0]}
    found = [name for kind, name in _CPU_ALONE.items() if kind in kinds]
    found += ["RandomErasing of normal values"] if program.makes_noise else []
    if found:
        raise UsageError(
            f"{where}: expected operations on colours alone with augment_on='device', got {', '.join(found)}; leave "
            "augment_on out"
        )


def _as_tensors(chains: BatchedChains) -> BatchedChains:
    import torch

    return replace(
        chains,
        rows=torch.from_numpy(chains.rows),
        numbers=torch.from_numpy(chains.numbers),
        taps=torch.from_numpy(chains.taps),
        erasures=torch.from_numpy(chains.erasures),
    )
