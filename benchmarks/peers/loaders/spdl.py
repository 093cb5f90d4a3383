"""SPDL: FFmpeg decodes, crops and scales in threads; the window is drawn in Python and handed to its filter graph."""

import math
import random

import numpy as np
import spdl.io
import torch
from spdl.pipeline import PipelineBuilder
from spdl.source.local_directory import LocalDirectory
from task import AREA, ASPECT, MEAN, SHORT_SIDE_PX, SIDE_PX, STD

SCALE = "flags=bilinear+accurate_rnd+full_chroma_int"


def batches(source, task, variant):
    files = LocalDirectory(source, "*/*.jpg")
    files.shuffle(seed=0)
    labels = {name: label for label, name in enumerate(sorted(entry.name for entry in source.iterdir()))}
    window = training_window if task.recipe == "train" else central_window

    def decode(path):
        packets = spdl.io.demux_image(str(path))
        frames = spdl.io.decode_packets(packets, filter_desc=window(packets.width, packets.height))
        return frames, labels[path.parent.name]

    def collate(samples):
        images = spdl.io.to_torch(spdl.io.convert_frames([frames for frames, _ in samples]))
        if task.dtype == "float32":
            images = images.permute(0, 3, 1, 2).float().sub_(MEAN_255).div_(STD_255)
        return images, np.array([label for _, label in samples])

    build = PipelineBuilder().add_source(files).pipe(decode, concurrency=task.workers)
    build = build.aggregate(task.batch_size, drop_last=True).pipe(collate).add_sink(2)
    pipeline = build.build(num_threads=task.workers)
    with pipeline.auto_stop():
        yield from pipeline


MEAN_255, STD_255 = (255 * torch.tensor(x).view(3, 1, 1) for x in (MEAN, STD))


def training_window(width, height):
    """Draw RandomResizedCrop's window and flip as torchvision does, as the description of a filter graph."""
    for _ in range(10):
        area = width * height * random.uniform(*AREA)
        aspect = math.exp(random.uniform(*map(math.log, ASPECT)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            break
    else:
        w, h = min(width, round(height * ASPECT[1])), min(height, round(width / ASPECT[0]))
    x, y = random.randint(0, width - w), random.randint(0, height - h)
    flip = ",hflip" if random.random() < 0.5 else ""
    return f"crop={w}:{h}:{x}:{y}:exact=1,scale={SIDE_PX}:{SIDE_PX}:{SCALE}{flip},format=rgb24"


def central_window(width, height):
    short = min(width, height)
    w, h = round(width * SHORT_SIDE_PX / short), round(height * SHORT_SIDE_PX / short)
    return f"scale={w}:{h}:{SCALE},crop={SIDE_PX}:{SIDE_PX},format=rgb24"
