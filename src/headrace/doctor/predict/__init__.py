"""What a changed loader would give: recorded work, simulated through workers, queue, cores and device."""

from .prediction import Prediction, predicted
from .recorded import Recorded, recorded
from .setup import Setup, StageChange

__all__ = ["Prediction", "Recorded", "Setup", "StageChange", "predicted", "recorded"]
