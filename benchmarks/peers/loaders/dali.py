"""NVIDIA DALI on the CPU: its own file reader, the window decoded for training, the whole image for validation."""

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from task import AREA, ASPECT, MEAN, SHORT_SIDE_PX, SIDE_PX, STD

MEAN_255, STD_255 = [255 * x for x in MEAN], [255 * x for x in STD]


def batches(source, task, variant):
    pipe = pipeline(
        source, task, batch_size=task.batch_size, num_threads=task.workers, device_id=None, prefetch_queue_depth=2
    )
    pipe.build()
    while True:
        images, labels = pipe.run()
        yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor()).squeeze(1)


@pipeline_def
def pipeline(source, task):
    encoded, labels = fn.readers.file(file_root=str(source), random_shuffle=True)
    if task.recipe == "train":
        images = fn.decoders.image_random_crop(encoded, random_area=AREA, random_aspect_ratio=ASPECT)
        images = fn.resize(images, size=(SIDE_PX, SIDE_PX), interp_type=types.INTERP_TRIANGULAR)
        mirror = fn.random.coin_flip()
    else:
        images = fn.decoders.image(encoded)
        images = fn.resize(images, resize_shorter=SHORT_SIDE_PX, interp_type=types.INTERP_TRIANGULAR)
        images = fn.crop(images, crop=(SIDE_PX, SIDE_PX))
        mirror = 0
    if task.dtype == "float32":
        images = fn.crop_mirror_normalize(images, dtype=types.FLOAT, mean=MEAN_255, std=STD_255, mirror=mirror)
    elif task.recipe == "train":
        images = fn.flip(images, horizontal=mirror)
    return images, labels
