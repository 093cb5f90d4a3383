"""Foreign texts as a reader may see them: escaped for terminals, HTML and JSON."""

from __future__ import annotations

import json
import re

# -- from doctor/report/figures.py: Figures in words, with as many digits as a measurement bears. What was not
# measured is a dash, never 0.


ABSENT = "–"


def duration(us: float | None) -> str:
    """One decimal below a hundred, none above: `4.8 µs`, `410 µs`, `41.2 ms`, `412 ms`, `3.4 s`, `2 min 5 s`."""
    if us is None:
        return ABSENT
    if us == 0:
        return "0 ms"
    if us < 999.5:
        return f"{us:.0f} µs" if us >= 9.95 else f"{us:.1f} µs"
    if us < 999_500:
        return f"{us / 1e3:.0f} ms" if us >= 99_950 else f"{us / 1e3:.1f} ms"
    return f"{us / 1e6:.1f} s" if us < 99_950_000 else _minutes(round(us / 1e6))


def share(part: float | None) -> str:
    """Whole per cents, and tenths below ten: `71 %`, `4.2 %`, `<0.1 %`. A true 0 is `0 %`."""
    if part is None:
        return ABSENT
    percent = part * 100
    if percent == 0:
        return "0 %"
    if abs(percent) < 0.05:
        return "<0.1 %"
    return f"{percent:.1f} %" if abs(percent) < 9.95 else f"{percent:.0f} %"


def sizes(used: float | None, whole: float | None) -> str:
    """`12 of 80 GB`; the unit once where it is the same."""
    first, second = size(used), size(whole)
    if used is not None and whole is not None and first.split(" ")[1] == second.split(" ")[1]:
        first = first.split(" ")[0]
    return f"{first} of {second}"


def size(count: float | None) -> str:
    """Bytes with decimal prefixes and two significant digits at least: `812 B`, `1.4 MB`, `23 GB`."""
    if count is None:
        return ABSENT
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def number(value: float | None) -> str:
    """A count or a ratio: `3`, `1.9`, `12`, `1,204`."""
    if value is None:
        return ABSENT
    if float(value).is_integer() or abs(value) >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 0.95 else f"{value:.2f}"


def counted(many: float, one: str) -> str:
    """`1 worker`, `4 workers`, `2 passes`, `3 batches`, `5 remedies`."""
    plural = one[:-1] + "ies" if one.endswith("dy") else one + ("es" if one.endswith(("s", "ch")) else "s")
    return f"{number(many)} {one if many == 1 else plural}"


def _minutes(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


# -- from doctor/report/escape.py: Text of the user's data, made safe to show: paths, keys, lines, command lines and
# whatever a process has said.


_NOT_ASCII = re.compile("[^\x20-\x7e]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"}


def safe(text: object, *, ascii_only: bool = False) -> str:
    """`text` on one line, with a backslash escape for each character that could do more than be seen: what steers a
    terminal, ends a line, has no width, turns the direction of writing, or is no character yet (`str.isprintable`).

    Bytes that a path held and that are not UTF-8 (surrogates in Python) are shown as such bytes, `\\xff`.
    """
    return _NOT_ASCII.sub(lambda found: _visible(found.group(), ascii_only), str(text))


def safe_json(text: str) -> str:
    """A JSON document of the same meaning in which no character but the line ends could do more than be seen."""
    return _NOT_ASCII.sub(lambda found: _visible_json(found.group()), text)


def _visible(character: str, ascii_only: bool) -> str:
    code = ord(character)
    if character.isprintable() and not ascii_only:
        return character
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape of one byte
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _visible_json(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if character == "\x7f" else json.dumps(character)[1:-1]
