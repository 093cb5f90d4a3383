"""Edits of the user's own script that remedies propose."""

from __future__ import annotations

from .changes import LoaderScript, WantedEdit
from .loader_call import ADOPTED, LoaderCall, argument
from .script_source import ScriptSource, ScriptSources, TableFacts, files_here, parsed

__all__ = [
    "ADOPTED",
    "LoaderCall",
    "LoaderScript",
    "ScriptSource",
    "ScriptSources",
    "TableFacts",
    "WantedEdit",
    "argument",
    "files_here",
    "parsed",
]
