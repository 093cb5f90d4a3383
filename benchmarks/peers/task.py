"""What is asked of every loader, and how a loader answers.

A loader is a module of `loaders` with two functions:

    prepare(photos, out, variant)      once: writes the folder of class folders `photos` into the folder `out`, in the
                                       loader's own form
    batches(source, task, variant)     iterates over (images, labels): one shuffled pass, images [N, 3, 224, 224] or
                                       [N, 224, 224, 3], labels [N]; `source` is `out`, or `photos` where no form is
                                       needed

`variant` tells forms or styles of one loader apart; registry.py lists them. The module is imported in the environment
of the loader only, and imports what it needs at its top, so that the time of an import is no part of a first batch.
"""

from dataclasses import dataclass

SIDE_PX = 224
SHORT_SIDE_PX = 256  # before the central crop of "validate"
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)  # of RandomResizedCrop's windows, torchvision's own defaults
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, on the scale 0 to 1

RECIPES = {
    "train": f"RandomResizedCrop({SIDE_PX}) + flip",
    "validate": f"Resize({SHORT_SIDE_PX}) + CenterCrop({SIDE_PX})",
}
WORKERS = 2  # threads, or processes where a loader has only these; and cores
DTYPES = ("uint8", "float32")


@dataclass(frozen=True)
class Task:
    """One recipe at one output type; float32 is normalised by ImageNet's mean and deviation."""

    recipe: str
    dtype: str
    batch_size: int = 256
    workers: int = WORKERS

    @property
    def name(self):
        return f"{self.recipe}-{self.dtype}"


TASKS = {task.name: task for task in (Task(recipe, dtype) for recipe in RECIPES for dtype in DTYPES)}
