"""Refuse webdataset's `pipe:` commands and `::` lists of shards, with what to give in their place."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from headrace.errors import UsageError
from headrace.stores import show_address

_PIPE, _LIST = "pipe:", "::"
_ARCHIVE = re.compile(r"\.(tar|tgz|zip)\b|^\w+://|^pipe:", re.IGNORECASE)
_ADDRESS = re.compile(r"\w+://[^\s'\"|;<>]+")


def refuse_shard_commands(parts: Sequence[Any]) -> None:
    """Raise UsageError for a `pipe:` command or a `::` list in `parts`. It shows addresses without credentials."""
    texts = [part for part in parts if isinstance(part, str)]
    if joined := [text for text in texts if _is_list(text)]:
        shown = ", ".join(repr(show_address(each)) for each in joined[0].split(_LIST) if not each.startswith(_PIPE))
        raise UsageError(f"expected addresses or paths, got shards joined by '::'. Give a list: hr.open([{shown}, …])")
    if commands := [text for text in texts if text.startswith(_PIPE)]:
        address = _ADDRESS.search(commands[0])
        such = f": hr.open({show_address(address[0])!r})" if address is not None else ""
        raise UsageError(
            "expected addresses or paths, got a `pipe:` command. Commands are not run here: samples are read at any "
            f"place of a shard. Give the shards' own addresses or paths{such}; credentials, profiles and headers go "
            "into store_options="
        )


def _is_list(text: str) -> bool:
    return _LIST in text and all(map(_ARCHIVE.search, text.split(_LIST))) and not os.path.lexists(text)
