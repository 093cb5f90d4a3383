import torch

from . import functional as F  # noqa: N812

__all__ = ["Compose", "RandomApply", "Resize", "ToTensor"]


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img


class ToTensor:
    def __call__(self, pic):
        return torch.as_tensor(pic)


class Resize(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, img):
        return F.resize(img, self.size)


class RandomApply(torch.nn.Module):
    def __init__(self, transforms):
        super().__init__()
        self.transforms = transforms

    def forward(self, img):
        for t in self.transforms:
            img = t(img)
        return img
