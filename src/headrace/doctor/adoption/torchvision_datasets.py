"""Samples of torchvision's datasets: class folders, COCO, VOC, and those that hold all images as one array."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from .code_layout import literal
from .recipe import KEY, DataSource, KnownSample, ModuleFunction, RecipePart
from .sample_code import SampleReader
from .sample_values import Cell, Computed, Picture, PictureStep
from .stand_ins import FunctionStandIn, LongArray, LongList, StandIn, class_of

ENCODED = ModuleFunction(
    "encoded",
    '''def encoded(pixels):
    """Return an image in memory as a PNG, which the Loader's threads decode without loss."""
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "PNG", compress_level=1)
    return target.getvalue()''',
)


_Columns: TypeAlias = dict[tuple[str, tuple[str | int, ...]], str]
_IMAGE: tuple[str, tuple[str | int, ...]] = ("", ("image",))
_FOLDER_COLUMNS: _Columns = {
    _IMAGE: "image",
    **{(f"self.{name}", (0,)): KEY for name in ("samples", "imgs")},
    **{(f"self.{name}", (1,)): "label" for name in ("samples", "imgs")},
    ("self.targets", ()): "label",
}
"""Of a class folder; a path's file is the picture, the path itself is the sample's key."""


@dataclass(frozen=True)
class ArrayDataset:
    """Dataset that holds its images as one array."""

    arguments: tuple[str, ...]
    """What its class is given beside the folder, each an attribute of it."""
    pixels: str = "images.data"
    labels: str = "images.targets"
    each: str = "image"
    """An image of `pixels` as [H, W] or [H, W, C]."""
    sizes: tuple[int, ...] = ()
    """Images of its parts; empty where these are not known here."""


_ARRAYS = {
    "cifar.CIFAR10": ArrayDataset(("train",), sizes=(50_000, 10_000)),
    "cifar.CIFAR100": ArrayDataset(("train",), sizes=(50_000, 10_000)),
    "mnist.MNIST": ArrayDataset(("train",), "images.data.numpy()"),
    "mnist.FashionMNIST": ArrayDataset(("train",), "images.data.numpy()"),
    "mnist.KMNIST": ArrayDataset(("train",), "images.data.numpy()"),
    "mnist.EMNIST": ArrayDataset(("split", "train"), "images.data.numpy()"),
    "svhn.SVHN": ArrayDataset(("split",), labels="images.labels", each="image.transpose(1, 2, 0)"),
    "stl10.STL10": ArrayDataset(("split", "folds"), labels="images.labels", each="image.transpose(1, 2, 0)"),
    "usps.USPS": ArrayDataset(("train",)),
}


@dataclass(frozen=True)
class FileDataset:
    """Dataset that holds lists of files and labels, which it has read from annotations of its own."""

    arguments: tuple[str, ...]
    """What its class is given beside the folder, each an attribute of it behind an underscore."""
    files: str = "_image_files"
    labels: str = "_labels"
    """Attributes that have an element for each sample."""


_FILES = {
    "flowers102.Flowers102": FileDataset(("split",)),
    "dtd.DTD": FileDataset(("split", "partition")),
    "fgvc_aircraft.FGVCAircraft": FileDataset(("split", "annotation_level")),
    "food101.Food101": FileDataset(("split",)),
    "sun397.SUN397": FileDataset(()),
    "oxford_iiit_pet.OxfordIIITPet": FileDataset(("split",), files="_images"),
}


def torchvision_sample(dataset: Any, kind: str, reader: SampleReader) -> KnownSample | None:
    """Return the sample of a dataset of a class of torchvision's, or of one derived from it; None of unknown ones."""
    name = kind.removeprefix("torchvision.datasets.")
    state = vars(dataset)
    if name in ("folder.ImageFolder", "folder.DatasetFolder"):
        return class_folder(dataset, reader, state.get("root"), state.get("samples"))
    if name == "coco.CocoDetection":
        return _coco(dataset, reader)
    if name == "voc.VOCSegmentation":
        return _voc(dataset, reader)
    if name == "voc.VOCDetection":
        note = "its boxes lie in an XML file an image: write them into one file as COCO has it, which hr.open reads"
        return _refused(dataset, note)
    if (listed := _FILES.get(name)) is not None:
        return _files(dataset, name.rpartition(".")[2], reader, listed)
    array = _ARRAYS.get(name)
    return None if array is None else _array(dataset, name.rpartition(".")[2], reader, array)


def _refused(dataset: Any, note: str) -> KnownSample:
    part = RecipePart(class_of(dataset).rpartition(".")[2], "", "", "no", note, "source")
    return KnownSample((Picture(Cell("", ("image",))),), DataSource("", parts=(part,)))


def class_folder(
    dataset: Any, reader: SampleReader, root: Any, samples: Any, *, natural: bool = False
) -> KnownSample | None:
    """Return the sample of a folder of class folders; `natural` where numbers in their names are sorted as such."""
    if not isinstance(root, str | PurePosixPath):
        return None
    length = samples.count if isinstance(samples, LongList) else len(samples) if isinstance(samples, list) else None
    names = vars(dataset).get("classes")
    source = DataSource(
        "hr.open(SOURCE)",
        _FOLDER_COLUMNS,
        constants={"SOURCE": literal(str(root))},
        parts=tuple(_folder_parts(dataset, natural)),
        length=length,
        classes=names.count if isinstance(names, LongList) else len(names) if isinstance(names, list) else None,
    )
    return KnownSample(_image_and_label(dataset, reader), source)


def _image_and_label(dataset: Any, reader: SampleReader, *steps: PictureStep) -> tuple[Any, Any]:
    """Return picture and label after the dataset's transforms."""
    picture = reader.applied(vars(dataset).get("transform"), [Picture(Cell("", ("image",)), steps)])
    label: Any = Cell("", ("label",))
    target = vars(dataset).get("target_transform")
    if target is not None:
        label = Computed(f"target_transform {target!r}", "", (label,))
    return picture, label


def _folder_parts(dataset: Any, natural: bool) -> Iterator[RecipePart]:
    loader = vars(dataset).get("loader")
    name = class_of(dataset).rpartition(".")[2]
    if isinstance(loader, FunctionStandIn) and loader.name.rpartition(".")[2] not in ("default_loader", "pil_loader"):
        place = f"{os.path.basename(loader.file)}:{loader.line}" if loader.file else ""
        yield RecipePart(f"{name}(loader={loader!r})", place, "", "check", "files are decoded here as RGB", "source")
    elif natural:
        is_same = _are_sorted_alike(dataset)
        note = (
            "" if is_same else "classes are numbered in the order of their names; timm sorts numbers in names as such"
        )
        yield RecipePart(name, "", "hr.open(SOURCE)", "exact" if is_same else "check", note, "source")
    else:
        yield RecipePart(name, "", "hr.open(SOURCE)", "exact", "", "source")


def _are_sorted_alike(dataset: Any) -> bool:
    """Tell whether the names of classes that are known sort alike as texts and by their numbers."""
    known = vars(dataset.reader).get("class_to_idx")
    names = list(known) if isinstance(known, dict) else []
    return bool(names) and [known[name] for name in sorted(names)] == list(range(len(names)))


def _coco(dataset: Any, reader: SampleReader) -> KnownSample:
    root = vars(dataset).get("root")
    note = "the path of the annotations is not kept by the dataset; boxes are those of the file, not of the view"
    part = RecipePart("CocoDetection", "", "hr.open(ANNOTATIONS, root=SOURCE)", "check", note, "source")
    constants = {"ANNOTATIONS": literal("annotations/instances_train2017.json"), "SOURCE": literal(str(root))}
    source = DataSource("hr.open(ANNOTATIONS, root=SOURCE)", {_IMAGE: "image"}, constants=constants, parts=(part,))
    picture = reader.applied(vars(dataset).get("transform"), [Picture(Cell("", ("image",)))])
    return KnownSample((picture, {"boxes": Cell("", ("bbox",)), "labels": Cell("", ("label",))}), source)


def _voc(dataset: Any, reader: SampleReader) -> KnownSample | None:
    """Return the sample of VOC's segmentation: the names of a split, and the files that belong to each."""
    state = vars(dataset)
    images, names = state.get("images"), state.get("image_set")
    first = images.first if isinstance(images, LongList) else images
    if not isinstance(first, list) or not first or not isinstance(first[0], str) or not isinstance(names, str):
        return None
    root = os.path.dirname(os.path.dirname(first[0]))
    constants = {
        "ROOT": literal(root),
        "NAMES": f'Path(ROOT, "ImageSets/Segmentation", {literal(names + ".txt")}).read_text().split()',
    }
    code = (
        'hr.open({"image": [f"JPEGImages/{name}.jpg" for name in NAMES], '
        '"mask": [f"SegmentationClass/{name}.png" for name in NAMES]}, root=ROOT)'
    )
    part = RecipePart("VOCSegmentation", "", "hr.open({image, mask}, root=ROOT)", "exact", "", "source")
    length = images.count if isinstance(images, LongList) else len(first)
    imports = ("from pathlib import Path",)
    columns: _Columns = {_IMAGE: "image", ("", ("mask",)): "mask"}
    source = DataSource(code, columns, constants=constants, imports=imports, parts=(part,), length=length)
    return KnownSample(_voc_pair(state, reader), source)


def _voc_pair(state: dict[str, Any], reader: SampleReader) -> Any:
    pair: tuple[Any, Any] = (Picture(Cell("", ("image",))), Picture(Cell("", ("mask",))))
    both = state.get("transforms")
    if isinstance(both, StandIn) and not class_of(both).startswith("torchvision.datasets."):
        return reader.applied(both, list(pair))
    return reader.applied(state.get("transform"), [pair[0]]), reader.applied(state.get("target_transform"), [pair[1]])


def _array(dataset: Any, name: str, reader: SampleReader, array: ArrayDataset) -> KnownSample | None:
    """Return the sample of a dataset that holds its images as one array: each becomes a PNG in memory, without loss."""
    state = vars(dataset)
    root, held = state.get("root"), state.get("data")
    given = [(argument, state.get(argument)) for argument in array.arguments]
    if not isinstance(root, str | PurePosixPath) or not _are_plain(given):
        return None
    given = [(argument, value) for argument, value in given if value is not None]
    keywords = "".join(f", {argument}={literal(value)}" for argument, value in given)
    code = (
        f'hr.open({{"image": [encoded({array.each}) for image in {array.pixels}], "label": {array.labels}}})'
    ).replace("images.", "IMAGES.")
    length = held.shape[0] if isinstance(held, LongArray) else None
    is_whole = not array.sizes or length is None or length in array.sizes
    note = "" if is_whole else f"the script keeps {length:,} of its images: select these"
    part = RecipePart(name, "", "hr.open({image, label})", "exact" if is_whole else "check", note, "source")
    labels = array.labels.rpartition(".")[2]
    source = DataSource(
        code,
        {_IMAGE: "image", ("self.data", ()): "image", (f"self.{labels}", ()): "label"},
        constants={"ROOT": literal(str(root)), "IMAGES": f"{name}(ROOT{keywords})"},
        imports=("import io", "from PIL import Image", f"from torchvision.datasets import {name}"),
        functions=(ENCODED,),
        parts=(part,),
        length=length,
    )
    is_grey = isinstance(held, LongArray) and len(held.shape) == 3
    steps = [PictureStep("grey", "", f"{name}: one channel")] if is_grey else []
    return KnownSample(_image_and_label(dataset, reader, *steps), source)


def _are_plain(given: Iterable[tuple[str, Any]]) -> bool:
    return all(value is None or isinstance(value, str | bool | int) for _, value in given)


def _files(dataset: Any, name: str, reader: SampleReader, listed: FileDataset) -> KnownSample | None:
    """Return the sample of a dataset that holds lists of its files and labels, which the module has it read again."""
    state = vars(dataset)
    root, held = state.get("root"), state.get(listed.files)
    given = [(argument, state.get(f"_{argument}")) for argument in listed.arguments]
    if state.get("_target_types") not in (None, ["category"]):
        return _refused(dataset, "its targets are masks or several: hr.open takes lists of files for each of them")
    if not isinstance(root, str | PurePosixPath) or not _are_plain(given):
        return None
    keywords = "".join(f", {argument}={literal(value)}" for argument, value in given)
    source = DataSource(
        f'hr.open({{"image": [str(file) for file in IMAGES.{listed.files}], "label": IMAGES.{listed.labels}}})',
        constants={"ROOT": literal(str(root)), "IMAGES": f"{name}(ROOT{keywords})"},
        imports=(f"from torchvision.datasets import {name}",),
        parts=(RecipePart(name, "", "hr.open({image, label})", "exact", "", "source"),),
        length=held.count if isinstance(held, LongList) else len(held) if isinstance(held, list) else None,
    )
    return KnownSample(_image_and_label(dataset, reader), source)


def held_in_memory(dataset: Any) -> str:
    """Say what a dataset's arrays are, where it holds what its samples are made of; empty where it holds none."""
    found = [(name, value) for name, value in _arrays_of(dataset) if isinstance(value, LongArray) and value.shape]
    if not found:
        return ""
    name, largest = max(found, key=lambda one: len(one[1].shape))
    return f"{name}, an array of {largest.dtype}{list(largest.shape)}"


def _arrays_of(dataset: Any) -> Sequence[tuple[str, Any]]:
    state = vars(dataset) if isinstance(dataset, StandIn) else {}
    tensors = state.get("tensors")
    listed = tensors if isinstance(tensors, list) else []
    return [*state.items(), *((f"tensors[{number}]", one) for number, one in enumerate(listed))]
