import torch

from . import functional as F  # noqa: N812
from .functional._utils import _get_kernel


class Transform(torch.nn.Module):
    def transform(self, inpt):
        raise NotImplementedError

    def forward(self, *inputs):
        outputs = tuple(self.transform(inpt) for inpt in inputs)
        return outputs if len(outputs) > 1 else outputs[0]


class Resize(Transform):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def transform(self, inpt):
        return _get_kernel(F.resize, type(inpt))(inpt, self.size)


class Compose(Transform):
    def __init__(self, transforms):
        super().__init__()
        self.transforms = transforms

    def forward(self, *inputs):
        needs_unpacking = len(inputs) > 1
        for transform in self.transforms:
            outputs = transform(*inputs)
            inputs = outputs if needs_unpacking else (outputs,)
        return outputs


class RandomApply(Compose):
    pass
