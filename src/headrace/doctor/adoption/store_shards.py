"""Shards of webdataset's in stores: addresses that `hr.open` takes, of URLs and of `pipe:` commands.

The texts come from evidence, where credentials are `***`: what they stood for goes into `store_options=` by hand.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

PIPE = "pipe:"
SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "hf", "http", "https")
"""Of addresses that `hr.open` takes."""
CUT = "***"
OPTIONS = {"--profile": "profile", "--endpoint-url": "endpoint", "--region": "region"}
"""Options of the stores' commands, and what they are in `store_options=`."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OPERATORS = "|&;<>"
_HEADERS = ("-H", "--header", "-u", "--user")


class NotInStoreError(ValueError):
    """A shard that names nothing in a store that could be opened; its text says why."""


@dataclass(frozen=True)
class StoreShard:
    """What a URL or a command names."""

    address: str
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the author has to add, as clauses."""


def is_streamed(text: str) -> bool:
    """Tell whether webdataset reads a shard from a store or a command, and not from a file."""
    return text.startswith(PIPE) or _SCHEME.match(text) is not None


def store_shard(text: str) -> StoreShard:
    """Return what a shard names. Raises NotInStoreError."""
    words = [text] if not text.startswith(PIPE) else _first_command(text)
    address = next((word for word in words if _SCHEME.match(word)), None)
    program = os.path.basename(words[0]) if words else ""
    if address is None:
        file = next((word for word in words[1:] if not word.startswith("-")), None) if program == "cat" else None
        if file is None:
            raise NotInStoreError(
                f"{program or 'the command'} of a pipe: names no address: write those of the tars it reads"
            )
        return StoreShard(file)
    if address.partition("://")[0].lower() not in SCHEMES:
        raise NotInStoreError(f"{address.partition('://')[0]}:// cannot be opened: copy the tars, or mount them")
    notes = []
    if f"://{CUT}@" in address or f"?{CUT}" in address:
        notes.append("the address had a user or a signature, which is not shown: see store_options=")
    if any(word.startswith(_HEADERS) for word in words[1:] if not word.startswith("--") or word in _HEADERS):
        notes.append("headers go into store_options={'client_options': {'default_headers': {…}}}")
    clean = address.replace(f"://{CUT}@", "://").replace(f"?{CUT}", "")
    return StoreShard(clean, _options(words), tuple(notes))


def common_options(shards: Iterable[StoreShard]) -> dict[str, Any]:
    """Return the options of all shards. Raises NotInStoreError where they differ."""
    each = [shard.options for shard in shards]
    if any(options != each[0] for options in each):
        raise NotInStoreError("shards need different store_options=: open them apart, and join them with hr.mix")
    return each[0] if each else {}


def _first_command(text: str) -> list[str]:
    """Return the words of a command up to what only says that it may fail. Raises NotInStoreError for a chain."""
    lexer = shlex.shlex(text.removeprefix(PIPE), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:  # a quotation that does not end
        words = text.removeprefix(PIPE).split()
    ends = [at for at, word in enumerate(words) if word and not word.strip(_OPERATORS)]
    if any(words[at] == "|" for at in ends):
        raise NotInStoreError("a chain of commands changes what is read: the Loader opens tars as they are stored")
    return words[: ends[0]] if ends else words


def _options(words: Sequence[str]) -> dict[str, Any]:
    spelled = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    options: dict[str, Any] = {OPTIONS[name]: value for name, value in pairwise(spelled) if name in OPTIONS}
    return options | ({"anonymous": True} if "--no-sign-request" in spelled else {})
