"""Sizes and numbers in the sentences of findings."""

from __future__ import annotations


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
