"""Escapes for foreign texts in terminals, HTML and JSON.

The texts are the user's data: paths, keys, lines, command lines and whatever a process has said.
"""

from __future__ import annotations

import json
import re

_NOT_ASCII = re.compile("[^\x20-\x7e]")


def safe(text: object, *, ascii_only: bool = False) -> str:
    r"""Return `text` on one line, with a backslash escape for each character that could do more than be seen.

    Such a character steers a terminal, ends a line, has no width, turns the direction of writing, or is no character
    yet (`str.isprintable`). Bytes of a path that are not UTF-8 (surrogates in Python) are shown as bytes, `\xff`.
    """
    return _NOT_ASCII.sub(lambda found: _visible(found.group(), ascii_only), str(text))


def safe_json(text: str) -> str:
    """Return a JSON document of the same meaning in which every character but line ends can only be seen."""
    return _NOT_ASCII.sub(lambda found: _visible_json(found.group()), text)


def _visible(character: str, ascii_only: bool) -> str:
    code = ord(character)
    if character.isprintable() and not ascii_only:
        return character
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape of one byte
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def _visible_json(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if character == "\x7f" else json.dumps(character)[1:-1]
