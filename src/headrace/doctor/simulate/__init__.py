"""What a changed loader would give: recorded work, simulated through workers, queue, cores and device."""

from headrace.doctor.predict.prediction import Prediction, predicted
from headrace.doctor.predict.setup import Setup, StageChange
from headrace.doctor.simulate.recording import Recorded, recorded

__all__ = ["Prediction", "Recorded", "Setup", "StageChange", "predicted", "recorded"]
