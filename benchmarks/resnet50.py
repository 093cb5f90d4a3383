"""ResNet-50 and its training step, for benchmarks that may not depend on torchvision.

He et al., "Deep Residual Learning for Image Recognition", 2015; stride in the 3 × 3 convolution, as in torchvision.
"""

import time
from itertools import islice

import torch
from harness import finish_device
from torch import nn

BLOCKS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""(blocks, width, stride of the first)."""
EXPANSION = 4


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = width * EXPANSION
        self.branch = nn.Sequential(
            *unit(channels, width, 1, 1), nn.ReLU(inplace=True), *unit(width, width, 3, stride), nn.ReLU(inplace=True)
        )
        self.last = nn.Sequential(*unit(width, out, 1, 1))
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else nn.Sequential(*unit(channels, out, 1, stride))

    def forward(self, x):
        return torch.relu(self.last(self.branch(x)) + self.shortcut(x))


def unit(channels, out, kernel, stride):
    return nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out)


def resnet50(classes=1000):
    layers, channels = [*unit(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for blocks, width, first_stride in BLOCKS:
        for number in range(blocks):
            layers.append(Bottleneck(channels, width, first_stride if number == 0 else 1))
            channels = width * EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def train(model, batches, warm_up, steps, device):
    """Train in bfloat16; return milliseconds a step after the warm-up, with the device drained at both ends."""
    optimizer, since = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), 0.0
    for number, (image, label) in enumerate(islice(batches, warm_up + steps)):
        if number == warm_up:
            finish_device(device)
            since = time.perf_counter()
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    finish_device(device)
    return (time.perf_counter() - since) / steps * 1e3
