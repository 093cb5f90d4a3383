"""Text of the user's data, made safe to show: paths, keys, lines, command lines and whatever a process has said."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff]"
)
"""Control characters, with which a terminal is steered; line ends of every kind; what has no width or turns the
direction of writing, with which a text can look like another; and halves of surrogate pairs, which no file takes."""
_NOT_ASCII = re.compile("[^\x20-\x7e]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"}


def safe(text: object, *, ascii_only: bool = False) -> str:
    """`text` on one line, with each character that could do more than be seen as its backslash escape.

    Bytes that a path held and that are not UTF-8 (surrogates in Python) are shown as such bytes, `\\xff`.
    """
    return (_NOT_ASCII if ascii_only else _UNSAFE).sub(lambda found: _escape(found.group()), str(text))


def safe_json(text: str) -> str:
    """A JSON document of the same meaning in which no character could do more than be seen."""
    return _UNSAFE.sub(lambda found: found.group() if found.group() == "\n" else f"\\u{ord(found.group()):04x}", text)


def _escape(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape of one byte
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
