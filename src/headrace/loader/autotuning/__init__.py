"""Sets threads and prefetch while a feed runs: windows of measured steps, and a pure climber that judges them."""

from headrace.feed.tuning.setting import Bounds, Setting
from headrace.feed.tuning.tuner import Tuner, tuner_of
from headrace.loader.autotuning.tuner import Controls, Readings, TunedPass

__all__ = ["Bounds", "Controls", "Readings", "Setting", "TunedPass", "Tuner", "tuner_of"]
