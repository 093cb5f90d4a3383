"""Translation of other libraries' transforms into fields, views and augmentations.

Parts are recognized by class name and read through their attributes; no library is imported.
"""

from __future__ import annotations

from headrace.fields.translation.albumentations_parts import from_albumentations
from headrace.fields.translation.reader import Translated, TranslatedPart
from headrace.fields.translation.torchvision_parts import from_timm, from_torchvision
