"""`import headrace`: the public names, and what it does not bring along."""

from __future__ import annotations

import importlib

from processes import run_python

import headrace

HEAVY = (
    "torch",
    "rich",
    "typer",
    "jinja2",
    "PIL",
    "torchvision",
    "pandas",
    "scipy",
    "tokenizers",
    "obstore",
    "huggingface_hub",
)


def test_public_names_are_pinned():
    names = """
        from_torchvision from_timm from_albumentations Translated TrivialAugmentWide TimmPolicy RandAugment
        AutoAugment AugMix ColorJitter ElasticTransform GaussianBlur RandomAdjustSharpness RandomAffine
        RandomApply RandomAutocontrast RandomChannelPermutation RandomChoice RandomEqualize RandomErasing
        RandomGrayscale RandomInvert RandomOrder RandomPerspective RandomPhotometricDistort RandomPosterize
        RandomRotation RandomSolarize IMAGENET Array Boxes BucketBatchSampler Buckets Budget CenterCrop CutMix
        Dataset Depth DevicePrefetcher FiveCrop Geometry HeadraceError Image Images ImageReader IndexedTar
        IndexedZip InstanceMasks Key Keypoints Label Letterbox Limits Loader Mask MixUp Normalize Normals
        Quantiles RandomQuarterTurn RandomCrop RandomHorizontalFlip RandomResizedCrop RandomScale
        RandomVerticalFlip Raw RayWorkers RepeatFactor Resize ResumableBatchSampler ResumableSampler
        SequencePacking TenCrop Text ThreadDataLoader Tiles Windowed cached decode_batch decode_image
        distributed doctor fit_budget metrics mix open read_images sample_random shared_list
    """
    assert sorted(headrace.__all__) == sorted(names.split())
    assert all(hasattr(headrace, name) for name in headrace.__all__)


def test_completion_shows_what_a_user_calls():
    shown = [name for name in dir(headrace) if not name.startswith("__")]
    assert shown == sorted([*headrace.__all__, "errors"])


def test_every_name_is_that_of_its_home():
    for name, module in headrace._HOMES.items():
        home = importlib.import_module(module)
        assert getattr(headrace, name) is getattr(home, name)


def test_import_brings_what_it_says_and_nothing_heavy_and_opens_nothing():
    """Counted and not timed: two hundred modules took 150 ms beyond numpy, of a promised 100."""
    code, out, error = run_python(
        f"""
        import os, sys, numpy
        def runs():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        before, running = set(sys.modules), runs()
        import headrace
        print(runs() == running, [name for name in {HEAVY!r} if name in sys.modules])
        print(*sorted(set(sys.modules) - before))
        before = set(sys.modules)
        headrace.Loader, headrace.Image, headrace.RandomResizedCrop, headrace.open
        after = set(sys.modules) - before
        print(len(after), "importlib.metadata" in after)
        """
    )
    assert (code, error) == (0, "")
    nothing, imported, loaded = out.splitlines()
    assert nothing == "True []", "threads and files are as before, and no heavy module is there"
    assert [name for name in imported.split() if name.startswith("headrace")] == ["headrace", "headrace.errors"]
    assert len(imported.split()) <= 8, "beside what finds an editable build"
    loaders, metadata = loaded.split()
    assert (int(loaders) <= 330, metadata) == (True, "False"), f"a Loader brings {loaders} modules"


def test_numpy_output_needs_no_torch(tmp_path):
    """Nor Pillow, as long as the core decodes."""
    from loader_data import write_folder

    write_folder(tmp_path, 8)
    code, out, error = run_python(
        f"""
        import sys, headrace as hr
        for batch in hr.Loader(sys.argv[1], view=hr.Resize((8, 8)), batch_size=4, output="numpy"):
            print(batch["image"].shape)
        print([name for name in {HEAVY!r} if name in sys.modules])
        """,
        tmp_path,
    )
    assert (code, out.splitlines(), error) == (0, ["(4, 3, 8, 8)"] * 2 + ["[]"], "")


def test_packages_are_attributes():
    """Without an import of their own."""
    code, out, error = run_python(
        """
        import headrace
        headrace.dropins.ThreadDataLoader, headrace.fields.Image, headrace.data.Dataset
        """
    )
    assert (code, out, error) == (0, "", "")
