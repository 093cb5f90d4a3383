"""Adoption of Headrace's Loader by a script: what the script's Dataset and DataLoader do, and the module that does it.

Pure, the trial apart: a session in, a recipe and Python text out. Known transforms are translated by
`headrace.from_torchvision` and its kin, on objects rebuilt from their descriptions in the session, without the
libraries that they are of. The trial runs that text in a process of its own.
"""

from __future__ import annotations

from .comparison import compare_with_script
from .image_views import PILLOW, ScriptView, script_view, survey_of
from .module import module_text
from .recipe import Adoption, LoaderRecipe, ModuleFunction, RecipePart
from .script_recipe import adopt
from .trial import EXPECTED_S, LoaderTrialRequest, loader_trial, tried_loader

__all__ = [
    "EXPECTED_S",
    "PILLOW",
    "Adoption",
    "LoaderRecipe",
    "LoaderTrialRequest",
    "ModuleFunction",
    "RecipePart",
    "ScriptView",
    "adopt",
    "compare_with_script",
    "loader_trial",
    "module_text",
    "script_view",
    "survey_of",
    "tried_loader",
]
