"""Mixtures: several loaders as one, in exact proportions."""

from __future__ import annotations

from headrace.loader.mixtures.mixed_loader import MixedLoader, mix

__all__ = ["MixedLoader", "mix"]
