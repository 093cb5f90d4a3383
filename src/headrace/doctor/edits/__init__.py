"""Edits of the user's own script that remedies propose."""

from __future__ import annotations

from headrace.doctor.edits.loader_call import ChangedScript, LoaderScript, WantedEdit, argument, iterated, loop_of
from headrace.doctor.edits.script_source import Replacement, ScriptSource, ScriptSources, dotted, files_here, parsed
