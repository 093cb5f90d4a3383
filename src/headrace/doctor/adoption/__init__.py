"""Adoption of Headrace's Loader by a script: the recipe of its samples, and an equivalent module.

Pure except for the trial: inspected samples and a session in, a recipe and Python text out. The trial runs that text in
a separate process.
"""

from __future__ import annotations

from headrace.doctor.adoption.adopt import adopt, described_loader
from headrace.doctor.adoption.comparison import script_loader
from headrace.doctor.adoption.recipe import Adoption, LoaderRecipe, files_beside, module_text
from headrace.doctor.adoption.trial import loader_trial
