"""ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", 2015; stride in the 3 × 3 convolution, as
torchvision has it), for benchmarks that may not depend on torchvision."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCKS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""(blocks, width, stride of the first)."""
EXPANSION = 4


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * EXPANSION
        self.branch = nn.Sequential(
            *unit(channels, width, 1, 1), nn.ReLU(inplace=True), *unit(width, width, 3, stride), nn.ReLU(inplace=True)
        )
        self.last = nn.Sequential(*unit(width, out, 1, 1))
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else nn.Sequential(*unit(channels, out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.last(self.branch(x)) + self.shortcut(x))


def unit(channels: int, out: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out)


def resnet50(classes: int = 1000) -> nn.Sequential:
    layers: list[nn.Module] = [*unit(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for blocks, width, first_stride in BLOCKS:
        for number in range(blocks):
            layers.append(Bottleneck(channels, width, first_stride if number == 0 else 1))
            channels = width * EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
