"""Whether the texts of a column are numbers: a text manifest does not say.

A column is one of numbers only if every entry is. So that nothing is lost, digits behind a leading zero (007) are a
name, and so are more digits than a float holds where some entries are no integers or missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"  # 18 digits always fit
_FLOAT = r"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(inf|Inf|INF)$"
_BEYOND_FLOAT = r"^[+-]?[0-9]{16,}$"
_TRUE, _FALSE = pa.array(["true", "True", "TRUE"]), pa.array(["false", "False", "FALSE"])
_MISSING = pa.array(csv.ConvertOptions().null_values)
"""The empty text, NA, nan, null and the like."""


@dataclass
class NumberTexts:
    """What the texts of one column seen so far may be."""

    integers: bool = True
    floats: bool = True
    truths: bool = True
    beyond_float: bool = False
    missing: bool = False
    any: bool = False

    def see(self, texts: pa.StringArray) -> None:
        if not (self.integers or self.floats or self.truths):
            return
        words = pc.ascii_trim_whitespace(texts)
        missing = pc.is_in(words, _MISSING)
        words = words.filter(pc.invert(missing))
        self.missing |= len(words) < len(texts)
        if not len(words):
            return
        self.any = True
        self.integers = self.integers and _all_match(words, _INTEGER)
        self.floats = self.floats and _all_match(words, _FLOAT)
        self.truths = self.truths and pc.all(pc.or_(pc.is_in(words, _TRUE), pc.is_in(words, _FALSE))).as_py()
        if self.floats:
            self.beyond_float |= pc.any(pc.match_substring_regex(words, _BEYOND_FLOAT)).as_py()

    def type(self) -> pa.DataType:
        if not self.any:
            return pa.string()
        if self.integers and not self.missing:
            return pa.int64()
        if self.floats and not self.beyond_float:
            return pa.float64()
        if self.truths:
            return pa.float64() if self.missing else pa.bool_()
        return pa.string()


def converted(texts: pa.StringArray, type: pa.DataType) -> pa.Array:
    """Texts as what `NumberTexts` has found them all to be."""
    if pa.types.is_string(type):
        return texts
    words = pc.ascii_trim_whitespace(texts)
    words = pc.if_else(pc.is_in(words, _MISSING), pa.scalar(None, pa.string()), words)
    words = pc.if_else(pc.is_in(words, _TRUE), "1", pc.if_else(pc.is_in(words, _FALSE), "0", words))
    return words.cast(type)


def _all_match(words: pa.StringArray, pattern: str) -> bool:
    found: bool = pc.all(pc.match_substring_regex(words, pattern)).as_py()
    return found
