"""Figures in the sentences of findings."""

from __future__ import annotations


def share(part: float) -> str:
    return f"{part:.0%}".replace("%", " %")


def size(count: float) -> str:
    """Decimal prefixes and two significant digits at least: `812 B`, `1.4 MB`, `23 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def number(value: float) -> str:
    """Whole where it is, or where it is large: `3`, `1.9`, `12`."""
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 99.5 else f"{value:.1f}"


def counted(many: int, one: str) -> str:
    return f"{many} {one}" if many == 1 else f"{many} {one}es" if one.endswith("s") else f"{many} {one}s"
