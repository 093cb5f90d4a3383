"""Text for quantities, with as many digits as a measurement supports. An unknown value is a dash, never 0."""

from __future__ import annotations

ABSENT = "–"
FINE = 1.95
"""Speed-up below which a second decimal is shown."""


def duration(us: float | None) -> str:
    """Return a time such as `4.8 µs`, `410 µs`, `41.2 ms`, `412 ms`, `3.4 s` or `2 min 5 s`."""
    if us is None:
        return ABSENT
    if us == 0:
        return "0 ms"
    if us < 999.5:
        return f"{us:.0f} µs" if us >= 9.95 else f"{us:.1f} µs"
    if us < 999_500:
        return f"{us / 1e3:.0f} ms" if us >= 99_950 else f"{us / 1e3:.1f} ms"
    if us < 99_950_000:
        return f"{us / 1e6:.1f} s"
    minutes, seconds = divmod(round(us / 1e6), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def percent(part: float | None) -> str:
    """Return a share in whole per cents, in tenths below ten: `71 %`, `4.2 %`, `<0.1 %`. A true 0 is `0 %`."""
    if part is None:
        return ABSENT
    hundredths = part * 100
    if hundredths == 0:
        return "0 %"
    if abs(hundredths) < 0.05:
        return "<0.1 %"
    return f"{hundredths:.1f} %" if abs(hundredths) < 9.95 else f"{hundredths:.0f} %"


def sizes(used: float | None, whole: float | None) -> str:
    """Return `12 of 80 GB`, with a common unit only once."""
    first, second = size(used), size(whole)
    if used is not None and whole is not None and first.split(" ")[1] == second.split(" ")[1]:
        first = first.split(" ")[0]
    return f"{first} of {second}"


def size(count: float | None) -> str:
    """Return bytes with decimal prefixes and at least two significant digits: `812 B`, `1.4 MB`, `23 GB`."""
    if count is None:
        return ABSENT
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def number(value: float | None) -> str:
    """Return a count or a ratio: `3`, `1.9`, `12`, `1,204`."""
    if value is None:
        return ABSENT
    if float(value).is_integer() or abs(value) >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 0.95 else f"{value:.2g}"


def counted(many: float, one: str) -> str:
    """Return `1 worker`, `4 workers`, `2 passes`, `3 batches`, `5 remedies`."""
    plural = one[:-1] + "ies" if one.endswith("dy") else one + ("es" if one.endswith(("s", "ch")) else "s")
    return f"{number(many)} {one if many == 1 else plural}"


def times(speedup: float) -> str:
    """Return a ratio of speeds or durations: `2.6 ×`, `1.04 ×`."""
    return f"{speedup:.2f} ×" if speedup < FINE else f"{number(speedup)} ×"


def about(seconds: float) -> str:
    """Return an estimated time with few digits: `about 40 s`, `about 3 min`."""
    if seconds < 90:
        return f"about {max(round(seconds / 5) * 5, 5)} s"
    return f"about {round(seconds / 60)} min"
