"""Which blocks of steps and batches are kept where not all can be: a sample that all processes agree on."""

from __future__ import annotations

BLOCK = 64
"""Steps or batches that are kept, or left out, together; more than a loader has workers, as a rule, so that the batches
kept are those of the steps kept, whichever worker made them."""


def is_kept(block: int, halvings: int) -> bool:
    """Whether a block is among the 1 in 2 ** `halvings` that are kept.

    Each halving keeps one of two neighbours among what the halvings before it kept, so that a process that keeps fewer
    keeps none that another leaves out. Which of the two it is, a hash says: at every second one, a run whose epochs are
    as long would never be seen to begin one.
    """
    return all((block >> (level - 1)) & 1 == _toss(block >> level, level) for level in range(1, halvings + 1))


def left_out(block: int, halvings: int) -> int:
    """How many blocks from this one on are left out before one is kept."""
    count = 0
    while not is_kept(block + count, halvings):
        count += 1
    return count


def _toss(pair: int, level: int) -> int:
    """0 or 1, by the finaliser of MurmurHash3 (Austin Appleby, public domain)."""
    mixed = (pair * 0x9E3779B1 + level) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) & 1
