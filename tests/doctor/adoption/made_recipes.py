"""Recipes of made datasets: described as a session does, without a session."""

import importlib.util
import sys
from pathlib import Path

from torch.utils.data import DataLoader, default_collate

from headrace.doctor.adoption.comparison import compared, leaves
from headrace.doctor.adoption.module import module_text
from headrace.doctor.adoption.observed import ScriptData
from headrace.doctor.adoption.script_recipe import ScriptRecipe
from headrace.doctor.adoption.stand_ins import Rebuilding
from headrace.doctor.edits import ScriptSource, ScriptSources, files_here
from headrace.doctor.probe.described_objects import ObjectDescriber
from headrace.doctor.session.producers import OutputLeaf

HEAD = """
import csv, os, random, tarfile, io
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


def pixels_of(image):
    return (torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255 - MEAN) / STD
"""

PAIRED = """
class CLASS(Dataset):
    def __init__(self, root):
        self.root = root
        self.names = sorted(name[:-4] for name in os.listdir(os.path.join(root, "images")))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        image = Image.open(os.path.join(self.root, "images", name + ".ENDING")).convert("RGB")
        mask = Image.open(os.path.join(self.root, "masks", name + ".png"))
"""
"""Head of a dataset of images with a mask each, by the same name in two folders."""


def paired(name, ending):
    """Return the head of such a dataset, up to where its sample is made of `image` and `mask`."""
    return PAIRED.replace("CLASS", name).replace("ENDING", ending)


def loaded(text, path: Path):
    """Import a script of this text."""
    path.write_text(HEAD + text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def data_of(dataset, collate=default_collate, batch=None, samples=()):
    """Return what a session would tell of a DataLoader over this dataset."""
    described = ObjectDescriber().describe({"dataset": dataset, "collate": collate})
    batch = collate([dataset[0], dataset[1]]) if batch is None else batch
    seen = {
        path: OutputLeaf(path, "str")
        if isinstance(leaf, str)
        else OutputLeaf(path, "tensor", list(leaf.shape), str(leaf.dtype))
        for path, leaf in leaves(batch)
    }
    facts = {"described": described, "batch_size": 4}
    return ScriptData(facts, Rebuilding(described), samples, seen, True, ["python", "train.py"])


def recipe_of(dataset, path=None, sources=None, **given):
    files = [] if path is None else [ScriptSource(str(path), path.read_text())]
    return ScriptRecipe(data_of(dataset, **given), files, sources or files_here()).recipe()


def differences(recipe, dataset):
    """Load samples both ways, and return the largest difference of each value; None where kinds differ."""
    names = {"__name__": "draft"}
    exec(module_text(recipe), names)
    rows = list(compared(DataLoader(dataset), names["make_loader"], names["batches"], 3))
    return {row.path: row.largest if row.is_same_kind else None for row in rows}


def known(name, **attributes):
    """Describe an object of a library's."""
    return {"class": name, "attributes": attributes}


def described_recipe(dataset, *, batch=None, **given):
    facts = {"described": {"dataset": dataset, **given}, "batch_size": 8}
    seen = {leaf.path: leaf for leaf in batch or [OutputLeaf("0", "tensor", [8, 3, 24, 24], "float32")]}
    rebuilt = Rebuilding({"dataset": dataset, "collate": given.get("collate"), "sampler": given.get("sampler")})
    return ScriptRecipe(ScriptData(facts, rebuilt, [], seen, True, ["python", "t.py"]), [], ScriptSources()).recipe()


def image_folder(root, *transforms):
    transform = known("torchvision.transforms.transforms.Compose", transforms=list(transforms))
    return known("torchvision.datasets.folder.ImageFolder", root=root, transform=transform, target_transform=None)


CENTER = known("torchvision.transforms.transforms.CenterCrop", size=[24, 24])
TENSOR = known("torchvision.transforms.transforms.ToTensor")
