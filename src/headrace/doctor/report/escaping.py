"""Escapes for user data in terminals, HTML and JSON: paths, keys, source lines, commands and process output."""

from __future__ import annotations

import json
import re

_NOT_ASCII = re.compile("[^\x20-\x7e]")


def safe(text: object, *, ascii_only: bool = False) -> str:
    r"""Return `text` on one line, with a backslash escape for each character that is not plainly visible.

    Escaped characters control a terminal, end a line, have no width, change the writing direction, or are unassigned
    (`str.isprintable`). Path bytes that are not UTF-8 (surrogates in Python) become byte escapes, such as `\xff`.
    """
    return _NOT_ASCII.sub(lambda found: _visible(found.group(), ascii_only), str(text))


def safe_json(text: str) -> str:
    """Return an equivalent JSON document in which all characters except line ends are plainly visible."""
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
