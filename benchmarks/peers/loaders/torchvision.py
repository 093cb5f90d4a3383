"""torchvision's ImageFolder under torch's DataLoader; "v1": Pillow and transforms v1, "v2": decode_jpeg and v2."""

from task import AREA, ASPECT, MEAN, SHORT_SIDE_PX, SIDE_PX, STD
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder

from .folder import read
from .steps import Steps


def batches(source, task, variant):
    if variant == "v1":
        dataset = ImageFolder(source, v1.Compose(steps_v1(task)))
    else:
        dataset = ImageFolder(source, Steps(task), loader=read)
    return iter(DataLoader(dataset, batch_size=task.batch_size, num_workers=task.workers, shuffle=True, drop_last=True))


def steps_v1(task):
    if task.recipe == "train":
        view = [v1.RandomResizedCrop(SIDE_PX, scale=AREA, ratio=ASPECT), v1.RandomHorizontalFlip()]
    else:
        view = [v1.Resize(SHORT_SIDE_PX), v1.CenterCrop(SIDE_PX)]
    if task.dtype == "float32":
        return [*view, v1.ToTensor(), v1.Normalize(MEAN, STD)]
    return [*view, v1.PILToTensor()]
