"""Edits of the user's own script that remedies propose."""

from __future__ import annotations

from .changes import ChangedScript, WantedEdit, changed
from .loader_call import LoaderCall, argument, loader_call, run_with
from .script_source import ScriptSource, ScriptSources, dotted, files_here, no_files, parsed

__all__ = [
    "ChangedScript",
    "LoaderCall",
    "ScriptSource",
    "ScriptSources",
    "WantedEdit",
    "argument",
    "changed",
    "dotted",
    "files_here",
    "loader_call",
    "no_files",
    "parsed",
    "run_with",
]
