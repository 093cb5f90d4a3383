"""NVIDIA DALI on the CPU: colour by `color_twist`, RandAugment by its own auto_aug, chance by conditional execution."""

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali import math as dali_math
from nvidia.dali.auto_aug import rand_augment
from task import GLOBAL_PX, IGNORE, LOCAL_PX, MASK_PX, MEAN, SIDE_PX, STD

from .folder import mask_of, samples

MEAN_255, STD_255 = [255 * x for x in MEAN], [255 * x for x in STD]
ASPECT = (3 / 4, 4 / 3)
DEGREES = 360
DINO = (0.4, 0.4, 0.2, 0.1, 0.2)


def batches(source, task, variant):
    made = PIPELINES.get(task.recipe, crops)
    pipe = made(source, task, batch_size=task.batch_size, num_threads=task.workers, device_id=None)
    pipe.build()
    while True:
        *images, labels = pipe.run()
        labels = np.asarray(labels.as_tensor())
        yield [np.asarray(image.as_tensor()) for image in images], labels.squeeze(-1)


@pipeline_def(enable_conditionals=True)
def crops(source, task):
    """One decode; of each crop, its own draws. A single crop is decoded by its window."""
    encoded, labels = fn.readers.file(file_root=str(source), random_shuffle=True)
    if task.recipe in ("simclr", "dino"):
        decoded = fn.decoders.image(encoded)
        return *(VIEWS[task.recipe](decoded)), labels
    images = fn.decoders.image_random_crop(encoded, random_area=(0.08, 1.0), random_aspect_ratio=ASPECT)
    images = fn.resize(images, size=(SIDE_PX, SIDE_PX), interp_type=types.INTERP_TRIANGULAR)
    if task.dtype == "uint8":
        images = fn.flip(images, horizontal=fn.random.coin_flip())
        return (jitter(images, 0.4, 0.4, 0.4, 0.1) if task.recipe == "jitter" else images), labels
    if task.recipe == "randaugment":
        images = fn.flip(images, horizontal=fn.random.coin_flip())
        images = rand_augment.rand_augment(images, n=2, m=9, shape=(SIDE_PX, SIDE_PX))
    mirror = 0 if task.recipe == "randaugment" else fn.random.coin_flip()
    images = fn.crop_mirror_normalize(images, dtype=types.FLOAT, mean=MEAN_255, std=STD_255, mirror=mirror)
    if task.recipe == "randaugment":
        images = erased(images)
    return images, labels


def jitter(images, brightness, contrast, saturation, hue):
    return fn.color_twist(
        images,
        brightness=fn.random.uniform(range=(1 - brightness, 1 + brightness)),
        contrast=fn.random.uniform(range=(1 - contrast, 1 + contrast)),
        saturation=fn.random.uniform(range=(1 - saturation, 1 + saturation)),
        hue=fn.random.uniform(range=(-hue * DEGREES, hue * DEGREES)),
    )


def colour(images, brightness, contrast, saturation, hue, grey):
    if fn.random.coin_flip(probability=0.8, dtype=types.BOOL):
        images = jitter(images, brightness, contrast, saturation, hue)
    if fn.random.coin_flip(probability=grey, dtype=types.BOOL):
        images = fn.saturation(images, saturation=0.0)
    return images


def blurred(images, kernel, p):
    if fn.random.coin_flip(probability=p, dtype=types.BOOL):
        images = fn.gaussian_blur(images, window_size=kernel, sigma=fn.random.uniform(range=(0.1, 2.0)))
    return images


def cut(decoded, size, scale):
    options = {"random_area": scale, "random_aspect_ratio": ASPECT, "interp_type": types.INTERP_TRIANGULAR}
    return fn.flip(fn.random_resized_crop(decoded, size=(size, size), **options), horizontal=fn.random.coin_flip())


def simclr(decoded):
    return [blurred(colour(cut(decoded, SIDE_PX, (0.08, 1.0)), 0.8, 0.8, 0.8, 0.2, 0.2), 23, 0.5) for _ in range(2)]


def dino(decoded):
    first, second = (colour(cut(decoded, GLOBAL_PX, (0.4, 1.0)), *DINO) for _ in range(2))
    first, second = blurred(first, 9, 1.0), solarized(blurred(second, 9, 0.1))
    return [first, second, *(blurred(colour(cut(decoded, LOCAL_PX, (0.05, 0.4)), *DINO), 9, 0.5) for _ in range(8))]


def solarized(images):
    if fn.random.coin_flip(probability=0.2, dtype=types.BOOL):
        inverted = types.Constant(255, dtype=types.UINT8) - images
        dark = fn.cast_like(images < 128, images)
        images = dark * images + (dark ^ types.Constant(1, dtype=types.UINT8)) * inverted
    return images


VIEWS = {"simclr": simclr, "dino": dino}


def erased(images):
    """RandomErasing(0.25), on normalised images [C, H, W]."""
    if fn.random.coin_flip(probability=0.25, dtype=types.BOOL):
        area = fn.random.uniform(range=(0.02, 0.33))
        ratio = dali_math.exp(fn.random.uniform(range=(float(np.log(0.3)), float(np.log(3.3)))))
        shape = fn.stack(dali_math.sqrt(area * ratio), dali_math.sqrt(area / ratio))
        shape = dali_math.min(shape, 1.0)
        place = fn.random.uniform(range=(0.0, 1.0), shape=2) * (1.0 - shape)
        options = {"normalized": True, "axis_names": "HW", "fill_value": 0.0}
        images = fn.erase(images, anchor=place, shape=shape, **options)
    return images


@pipeline_def(enable_conditionals=True)
def segment(source, task):
    """One scale, crop and flip of both; brightness, contrast, saturation and hue each at even chance."""
    paths = [path for path, _ in samples(source)]
    order = {"random_shuffle": True, "seed": 1}
    images, _ = fn.readers.file(files=paths, name="images", **order)
    masks, _ = fn.readers.file(files=[mask_of(path) for path in paths], name="masks", **order)
    images = fn.decoders.image(images)
    masks = fn.decoders.image(masks, output_type=types.GRAY)
    side = fn.random.uniform(range=(MASK_PX / 2, MASK_PX * 2))
    images = fn.resize(images, resize_shorter=side, interp_type=types.INTERP_TRIANGULAR)
    masks = fn.resize(masks, resize_shorter=side, interp_type=types.INTERP_NN)
    place = {"crop": (MASK_PX, MASK_PX), "out_of_bounds_policy": "pad"}
    place |= {"crop_pos_x": fn.random.uniform(range=(0.0, 1.0)), "crop_pos_y": fn.random.uniform(range=(0.0, 1.0))}
    mirror = fn.random.coin_flip()
    images = fn.flip(fn.crop(images, **place), horizontal=mirror)
    masks = fn.flip(fn.crop(masks, fill_values=IGNORE, **place), horizontal=mirror)
    images = fn.color_twist(
        images,
        brightness=at_times(0.875, 1.125),
        contrast=at_times(0.5, 1.5),
        saturation=at_times(0.5, 1.5),
        hue=at_times(-18.0, 18.0, none=0.0),
    )
    return images, masks


def at_times(low, high, none=1.0):
    drawn, even = fn.random.uniform(range=(low, high)), fn.cast(fn.random.coin_flip(), dtype=types.FLOAT)
    return even * drawn + (1.0 - even) * none


PIPELINES = {"segment": segment}
