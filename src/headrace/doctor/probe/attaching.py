"""Installation of the probe's hooks, and of the remedies that a proof injects around them."""

from __future__ import annotations

import os
from functools import partial

from .batch_order import BatchOrder
from .hooks import hooks_of
from .probe import Probe
from .sample_digests import BatchDigests, RandomDraws
from .scratch_saves import ScratchSaves


def attach(probe: Probe) -> None:
    """Register hooks for torch and for every library with stages, to be installed on import."""
    probe.imports.attach()
    probe.batches.collections.watch()
    if probe.settings.digests:
        digests = probe.digests = BatchDigests(
            probe.training.state, probe.evidence, probe.fault, batches=probe.settings.digests
        )
        draws = RandomDraws(probe.evidence, probe.clock, probe.fault)
        probe.when_imported("torch.utils.data.dataloader", partial(digests.install, probe.patches))
        probe.when_imported("torch.utils.data._utils.fetch", partial(draws.install, probe.patches))
    if probe.settings.orders:
        order = BatchOrder(probe.training.state, probe.evidence, probe.clock, probe.fault)
        for module, install in order.hooks(probe.patches):
            probe.when_imported(module, install)
    if probe.settings.scratch:
        saves = ScratchSaves(os.path.join(probe.settings.scratch, "saves"), probe.note, probe.fault)
        probe.training.replay.before_copies.append(saves.begin)
        for module, install in saves.hooks(probe.patches):
            probe.when_imported(module, install)
        if probe.settings.proves:
            saves.begin()
    _inject(probe, "BENEATH")
    for module, install in hooks_of(probe):
        probe.when_imported(module, install)
    _inject(probe, "AROUND")
    probe.patches.rebind()


def _inject(probe: Probe, where: str) -> None:
    """Inject the remedies of one layer. Only a run that proves remedies imports them."""
    if probe.settings.changes:
        from . import remedies

        remedies.inject(probe, getattr(remedies, where))
