"""Referee between two loaders: do they give the same samples, values and distributions?"""

from headrace.tools.equal.judging import CODES, Difference, Judgement, Unseen, judge
from headrace.tools.equal.observing import LoaderObservation, observe

__all__ = ["CODES", "Difference", "Judgement", "LoaderObservation", "Unseen", "judge", "observe"]
