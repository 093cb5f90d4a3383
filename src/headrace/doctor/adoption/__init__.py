"""Adoption of Headrace's Loader by a script: the recipe of its samples, and an equivalent module.

Pure except for the trial: inspected samples and a session in, a recipe and Python text out. The trial runs that text in
a separate process.
"""

from __future__ import annotations

from .adopt import adopt
from .comparison import compare_with_script
from .image_reader import ScriptView, script_view, survey_of
from .module import module_text
from .module_files import files_beside
from .observed import described_loader, script_data
from .recipe import Adoption, LoaderRecipe, RecipePart
from .script_start import script_loader
from .trial import EXPECTED_S, LoaderTrialRequest, loader_trial, tried_loader

__all__ = [
    "EXPECTED_S",
    "Adoption",
    "LoaderRecipe",
    "LoaderTrialRequest",
    "RecipePart",
    "ScriptView",
    "adopt",
    "compare_with_script",
    "described_loader",
    "files_beside",
    "loader_trial",
    "module_text",
    "script_data",
    "script_loader",
    "script_view",
    "survey_of",
    "tried_loader",
]
