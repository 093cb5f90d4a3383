"""Texts and other files that are nearly right: sound ones after edits that keep most of their form."""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis import strategies as st

fuzzed = settings() if os.environ.get("HEADRACE_FUZZ_SECONDS") else settings(max_examples=60)
"""For each target: a few examples in the ordinary tests."""

PIECES = [
    *(b"\n", b"\n\n", b"\r", b"\r\n", b" ", b"\0"),
    *(b'"', b'""', b"'", b",", b"\t", b";", b"=", b"\\", b"{", b"}", b"[", b"]"),
    *(b"null", b"true", b"NaN", b"1e999", b"-0", b"9" * 30, b"a" * 5000, b"../", b"/etc/passwd"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\xc3\xa9", b"\xed\xa0\x80", b"\\ud800"),
]
"""What parsers of texts trip over."""


@st.composite
def edited_texts(draw: st.DrawFn, text: bytes) -> bytes:
    """Pieces put in or in place of others, and lines left out, doubled or joined."""
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 3)) == 0:
            lines = text.split(b"\n")
            at = draw(st.integers(0, len(lines) - 1))
            lines[at : at + 1] = [lines[at]] * draw(st.sampled_from([0, 2, 3]))
            text = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b""])).join(lines)
        else:
            at, gone = draw(st.integers(0, len(text))), draw(st.sampled_from([0, 0, 1, 2, 8]))
            text = text[:at] + draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=4))) + text[at + gone :]
    return text


@st.composite
def edited_bytes(draw: st.DrawFn, file: bytes) -> bytes:
    """Without regard to any form: a piece gone, put in, or in place of another; or all from somewhere on."""
    at = draw(st.integers(0, len(file)))
    gone, put = draw(st.integers(0, 30)), draw(st.binary(max_size=30))
    return file[:at] + put + file[at + gone :] if draw(st.integers(0, 7)) else file[:at]
