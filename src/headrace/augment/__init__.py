"""Augmentation: descriptions of what happens to pixels, and what is drawn for each sample or batch."""

from __future__ import annotations

from headrace.augment.combinators import RandomChoice
from headrace.augment.mixing import CutMix, Mixing, MixUp
from headrace.augment.mixing_draws import ONE, PAIRS, AnyMixing, DrawnMixing, choices_of, draw_mixing
