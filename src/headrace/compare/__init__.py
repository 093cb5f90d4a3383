"""Comparison of two loaders: do they give the same samples, values and distributions?

Used by `tools` (`headrace equal`) and the doctor's drafts and proofs. Read `observation.py` and `judgement.py` first.
"""

from headrace.compare.judgement import CODES, Difference, Judgement, Unseen, judge
from headrace.compare.observation import EpochObservation, LoaderObservation, as_array, batch_size_of, observe
from headrace.compare.report import judgement_lines

__all__ = [
    "CODES",
    "Difference",
    "EpochObservation",
    "Judgement",
    "LoaderObservation",
    "Unseen",
    "as_array",
    "batch_size_of",
    "judge",
    "judgement_lines",
    "observe",
]
