"""Refuse webdataset's `pipe:` commands and `::` lists of shards, and suggest the equivalent line.

Commands are never run: they stream from the start, but samples are read at any offset of a shard.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn
from urllib.parse import unquote

from headrace.errors import UsageError
from headrace.stores import is_remote, show_address

_PIPE = "pipe:"
_LIST = "::"
_ARCHIVE = re.compile(r"\.(tar|tgz|zip)\b|^\w+://|^pipe:", re.IGNORECASE)
_OPERATORS = "|&;<>"
_STORE_OPTIONS = {"--profile": "profile", "--endpoint-url": "endpoint", "--region": "region"}
"""Options of `aws` and `s5cmd` with a value, and their names in `store_options=`."""
_ANONYMOUS = "--no-sign-request"
_HEADERS = ("-H", "--header", "-u", "--user")
_SHOWN_PARTS = 3
_HUB_URL = re.compile(
    r"https://(?:huggingface|hf)\.co/datasets/(?P<name>[^/]+/[^/]+)/resolve/"
    r"(?P<revision>refs/convert/[\w.-]+|refs/pr/\d+|[^/]+)/(?P<path>[^?#]+)"
)


@dataclass(frozen=True)
class _Shard:
    """Shard in a command or a list, as arguments of `open`."""

    where: str
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Advice that the suggested line cannot express, as a sentence without its end."""


def refuse_shard_commands(parts: Sequence[Any]) -> None:
    """Raise UsageError for a `pipe:` command or a `::` list in `parts`, with the line that opens it here.

    The message shows only a command's program, addresses and file names: other words may be credentials.
    """
    texts = [part for part in parts if isinstance(part, str)]
    command = next((text for text in texts if text.startswith(_PIPE)), None)
    joined = next((text for text in texts if _is_list(text)), None)
    if joined is not None:
        _refuse(f"a list joined by {_LIST!r}, as webdataset has it", [each for text in texts for each in _split(text)])
    if command is not None:
        program = next(iter(_words(command)), "")
        _refuse(f"the command {os.path.basename(program)!r} of a pipe:, as webdataset has it", texts)


def _is_list(text: str) -> bool:
    return _LIST in text and all(map(_ARCHIVE.search, text.split(_LIST))) and not os.path.lexists(text)


def _split(text: str) -> list[str]:
    return text.split(_LIST) if _is_list(text) else [text]


def _refuse(got: str, texts: Sequence[str]) -> NoReturn:
    why = "Commands are not run here: samples are read at any place of a shard. " if got.startswith("the c") else ""
    shards = [_shard(text) for text in texts]
    named = [shard for shard in shards if shard is not None]
    if len(named) < len(shards):
        raise UsageError(
            f"expected addresses or paths, got {got}. {why}Write the addresses of the tars that it reads "
            f"(s3://…, gs://…, az://…, https://… or paths), uncompressed"
        )
    options = named[0].options
    notes = dict.fromkeys(note for shard in named for note in shard.notes)
    if any(shard.options != options for shard in named):
        options, notes = {}, notes | {"Shards that need other options are opened apart, and joined with hr.mix": None}
    more = f", store_options={dict(options)!r}" if options else ""
    end = "".join(f". {note}" for note in notes)
    raise UsageError(f"expected addresses or paths, got {got}. {why}Write: hr.open({_where(named)}{more}){end}")


def _where(shards: Sequence[_Shard]) -> str:
    if len(shards) == 1:
        return repr(shards[0].where)
    shown = ", ".join(repr(shard.where) for shard in shards[:_SHOWN_PARTS])
    return f"[{shown}, …]" if len(shards) > _SHOWN_PARTS else f"[{shown}]"


def _words(command: str) -> list[str]:
    """Return the words of a shell command, with its operators as separate words."""
    lexer = shlex.shlex(command.removeprefix(_PIPE), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # unclosed quotation
        return command.removeprefix(_PIPE).split()


def _shard(text: str) -> _Shard | None:
    """Return the shard that a part names; None for a command without an address or file."""
    if not text.startswith(_PIPE):
        return _Shard(show_address(text.removeprefix("file:")), notes=_notes(text))
    words = _words(text)
    ends = [at for at, word in enumerate(words) if word and not word.strip(_OPERATORS)]
    first = words[: ends[0]] if ends else words
    if any(words[at] == "|" for at in ends):
        return None  # later commands change the bytes
    address = next((word for word in first if is_remote(word)), None)
    on_hub = None if address is None else _HUB_URL.match(address)
    if on_hub is not None:
        log_in = "The token is that of `hf auth login`, or HF_TOKEN"
        where = f"hf://datasets/{on_hub['name']}@{on_hub['revision']}/{unquote(on_hub['path'])}"
        return _Shard(where, notes=(log_in,) if _has_headers(first) else ())
    if address is not None:
        return _Shard(show_address(address), _options(first), _notes(address, first))
    program = os.path.basename(first[0]) if first else ""
    if program == "cat":
        file = next((word for word in first[1:] if not word.startswith("-")), None)
    else:
        file = next((word.removeprefix("if=") for word in first if program == "dd" and word.startswith("if=")), None)
    return None if file is None else _Shard(file)


def _options(words: Sequence[str]) -> dict[str, Any]:
    spelled = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    options: dict[str, Any] = {
        _STORE_OPTIONS[name]: show_address(value) for name, value in pairwise(spelled) if name in _STORE_OPTIONS
    }
    return options | ({"anonymous": True} if _ANONYMOUS in spelled else {})


def _has_headers(words: Sequence[str]) -> bool:
    return any(word.startswith(_HEADERS) for word in words if not word.startswith("--") or word in _HEADERS)


def _notes(address: str, words: Sequence[str] = ()) -> tuple[str, ...]:
    notes = []
    if show_address(address) != address:
        notes.append("Keep the user and the query of the address, which are not shown here")
    if _has_headers(words):
        notes.append("Headers go into store_options={'client_options': {'default_headers': {…}}}")
    return tuple(notes)
