"""Native augmentations of an image's pixels after the view.

An augmentation is a description with the names and arguments of torchvision.transforms.v2. `compile_augment` turns a
list of them into a table of numbers from which the core draws the operations of each image (core/augment).

Used by `fields` and `loader`. Read `compiling.py` and `program.py` first.
"""

from __future__ import annotations

from headrace.augment.batched_chains import CHAINS, PAIRS, BatchedChains, DrawnChain
from headrace.augment.combinators import RandomApply, RandomChoice, RandomOrder
from headrace.augment.compiling import compile_augment
from headrace.augment.geometry import ElasticTransform, RandomAffine, RandomPerspective, RandomRotation
from headrace.augment.mixing import CutMix, Mixing, MixUp
from headrace.augment.mixing_draws import ONE, AnyMixing, DrawnMixing, choices_of, draw_mixing
from headrace.augment.pixels import (
    ColorJitter,
    GaussianBlur,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from headrace.augment.policies import AugMix, AutoAugment, RandAugment, TrivialAugmentWide, pairs_of
from headrace.augment.program import (
    AFFINE,
    AUGMIX,
    AUTOCONTRAST,
    BRIGHTNESS,
    CONTRAST,
    ELASTIC,
    EQUALIZE,
    ERASE,
    GAUSSIAN_BLUR,
    GRAYSCALE,
    HUE,
    INVERT,
    PERMUTE_CHANNELS,
    PERSPECTIVE,
    POSTERIZE,
    SATURATION,
    SHARPNESS,
    SOLARIZE,
    SOLARIZE_ADD,
    Augmentation,
    AugmentProgram,
    Drawn,
    Node,
)
from headrace.augment.timm_policies import AUGMIX_OPERATIONS, AUTO_POLICIES, RAND_SETS, WEIGHTED, TimmPolicy
