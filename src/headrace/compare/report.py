"""Report on two loaders, in lines."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.compare.judgement import CODES, Judgement


def judgement_lines(judgement: Judgement) -> Iterator[str]:
    """Yield the report: the verdict, each difference, what was not seen, how each leaf was compared, and the speed."""
    yield judgement.verdict
    for one in judgement.differences:
        where = f" {one.leaf}" if one.leaf else ""
        certainty = "" if one.p_value is None else f" (p = {one.p_value:.0e})"
        yield f"  {one.code}{where}: {one.before} | {one.after}{certainty}"
        yield f"    {CODES[one.code]}"
    for unseen in judgement.unseen:
        yield f"  not seen: {unseen.leaf or 'the batch'}: {', '.join(unseen.faults)}"
        yield f"    It takes {unseen.takes}."
    for leaf, how in judgement.compared.items():
        limit = "; one wrong sample, or windows off by a pixel, may stay unseen" if how == "distribution" else ""
        yield f"  compared: {leaf or 'the batch'} by {how}{limit}"
    before, after = judgement.samples_per_s
    speed = f", {before:.0f} | {after:.0f} samples/s" if before and after else ""
    yield f"  {judgement.samples[0]} | {judgement.samples[1]} samples{speed}"
