"""Edits of the user's own script that remedies propose."""

from __future__ import annotations

from .adopted_loader import ADOPTED, is_prefetched
from .changes import LoaderScript, WantedEdit
from .loader_call import LoaderCall, argument
from .script_source import ScriptSource, ScriptSources, TableFacts, dotted, files_here, parsed

__all__ = [
    "ADOPTED",
    "LoaderCall",
    "LoaderScript",
    "ScriptSource",
    "ScriptSources",
    "TableFacts",
    "WantedEdit",
    "argument",
    "dotted",
    "files_here",
    "is_prefetched",
    "parsed",
]
