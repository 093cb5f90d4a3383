"""Text for quantities: sizes, times, shares and counts."""

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


def percent(share: float) -> str:
    """As many digits as such a measurement bears."""
    return f"{share * 100:.0f} %" if share >= 0.0995 else f"{share * 100:.1f} %"


def time(us: float) -> str:
    """Three digits at most, and whole seconds from 1,000 on: `412 µs`, `1.75 ms`, `20 ms`."""
    if us >= 999.5e6:
        return f"{us / 1e6:.0f} s"
    if us >= 999.5e3:
        return f"{us / 1e6:.3g} s"
    return f"{us / 1e3:.3g} ms" if us >= 999.5 else f"{us:.0f} µs"


def counted(count: int, noun: str) -> str:
    """`1 batch`, `2 batches`."""
    plural = "es" if noun.endswith(("s", "ch")) else "s"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{plural}"
