"""Recorded sessions of real training scripts hold what is needed to build their pipelines again."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_scripts import DATA, FOLDER, recorded, script_text

from headrace.doctor.session.producers import BatchProducer, ObservedSample, OutputLeaf

NAMES = sorted(path.name.removesuffix(".json.xz") for path in FOLDER.glob("*.json.xz"))
SCRIPTS_NAMES = sorted(
    path.stem for path in FOLDER.glob("*.py") if path.stem != "adopted_data" and not path.stem.startswith("test_")
)


def described(name: str) -> dict[str, Any]:
    ((loader,),) = [trainer.loaders for trainer in recorded(name).trainers if trainer.loaders]
    found: dict[str, Any] = loader.facts["described"]
    return found


def producer(name: str) -> BatchProducer:
    return next(one for one in recorded(name).makers if one.samples)


def first(name: str) -> ObservedSample:
    return producer(name).samples[0]


def stages(name: str) -> list[str]:
    return [call.stage for call in first(name).calls]


def shapes(leaves: list[OutputLeaf]) -> dict[str, tuple[str, list[int] | None, str | None]]:
    return {leaf.path: (leaf.kind, leaf.shape, leaf.dtype) for leaf in leaves}


def facts(name: str, stage: str) -> list[dict[str, Any]]:
    return [call.facts for call in first(name).calls if call.stage == stage]


def transforms(compose: dict[str, Any]) -> list[str]:
    return [one["class"].rpartition(".")[2] for one in compose["attributes"]["transforms"]]


def test_each_script_is_recorded() -> None:
    assert NAMES == SCRIPTS_NAMES


@pytest.mark.parametrize("name", NAMES)
def test_samples_and_batches_are_there_and_name_no_place_of_the_machine(name: str) -> None:
    session = recorded(name)
    made = producer(name)
    assert 0 < len(made.samples) <= 8
    assert 0 < len(made.collated) <= 2
    assert all(sample.output for sample in made.samples + made.collated)
    places = {call.place for sample in made.samples for call in sample.calls if call.place is not None}
    assert {place.split(":")[0] for place in places} <= {f"/project/{name}.py"}
    functions = {place.rpartition(":")[2].partition(".")[0] for place in places}
    assert all(function in script_text(name) for function in functions)
    paths = [call.facts["path"] for sample in made.samples for call in sample.calls if "path" in call.facts]
    assert all(path.startswith(f"{DATA}/") for path in paths)
    assert not any(leaf.path == "" for leaf in made.collated[0].output)
    assert session.steps == 10


@pytest.mark.parametrize("name", ["folder_v1", "folder_v2", "folder_timm"])
def test_a_class_folder_has_its_root_and_transforms(name: str) -> None:
    dataset = described(name)["dataset"]
    assert dataset["class"] == "torchvision.datasets.folder.ImageFolder"
    assert dataset["attributes"]["root"] == DATA
    assert dataset["attributes"]["samples"]["list"] == 160
    names = transforms(dataset["attributes"]["transform"])
    assert [stage.partition(":")[2] for stage in stages(name) if stage.startswith("transform:")][1:] == names


def test_v1s_transforms_have_their_parameters() -> None:
    crop, flip, _, normalize = described("folder_v1")["dataset"]["attributes"]["transform"]["attributes"]["transforms"]
    assert crop["attributes"]["size"] == [224, 224]
    assert crop["attributes"]["interpolation"]["value"] == "bilinear"
    assert flip["attributes"]["p"] == 0.5
    assert normalize["attributes"]["mean"] == [0.485, 0.456, 0.406]
    assert shapes(producer("folder_v1").collated[0].output) == {
        "0": ("tensor", [8, 3, 224, 224], "float32"),
        "1": ("tensor", [8], "int64"),
    }


def test_a_collate_function_shows_its_closure_and_the_mixing_in_it() -> None:
    collate = described("folder_v2")["collate"]
    assert collate["closure"]["mixup"]["class"].endswith(".MixUp")
    assert collate["closure"]["mixup"]["attributes"]["alpha"] == 0.2
    (mixed,) = [call for call in producer("folder_v2").collated[0].calls if call.stage == "transform:MixUp"]
    assert mixed.facts["inside"] == 0


def test_opencv_and_albumentations_are_seen() -> None:
    found = described("folder_albumentations")["dataset"]
    assert found["bases"] == ["torch.utils.data.dataset.Dataset"]
    assert stages("folder_albumentations")[:3] == [
        "decode:OpenCV imread",
        "transform:OpenCV cvtColor",
        "transform:RandomResizedCrop",
    ]
    assert transforms(found["attributes"]["transform"]) == [
        *("RandomResizedCrop", "HorizontalFlip", "ColorJitter", "Normalize", "ToTensorV2")
    ]
    crop = found["attributes"]["transform"]["attributes"]["transforms"][0]["attributes"]
    assert (crop["size"], crop["scale"]) == ([224, 224], [0.5, 1.0])


def test_captions_come_from_a_table_by_a_tokeniser() -> None:
    attributes = described("captions_csv")["dataset"]["attributes"]
    assert attributes["df"] == {"class": attributes["df"]["class"], "rows": 160, "columns": ["image", "caption"]}
    (tokenised,) = [call.facts for call in first("captions_csv").calls if call.stage.startswith("tokenise:")]
    assert (tokenised["max_length"], tokenised["padding"], tokenised["truncation"]) == (32, "max_length", True)
    assert tokenised["first"].split()
    assert shapes(first("captions_csv").output)["input_ids"] == ("tensor", [32], "int64")


def test_depth_comes_from_a_tar_and_is_normalised_between_quantiles() -> None:
    members = facts("depth_tar", "lookup:tarfile member")
    assert {one["archive"] for one in members} == {f"{DATA}/depth.tar"}
    assert [one["member"].partition(".")[2] for one in members] == ["rgb.png", "depth.png"]
    assert [one["mode"] for one in facts("depth_tar", "decode:Pillow load")] == ["RGB", "I;16"]
    assert [one["arguments"][1] for one in facts("depth_tar", "call:torch.quantile")] == [0.02, 0.98]
    depth = next(leaf for leaf in first("depth_tar").output if leaf.path == "depth")
    assert (depth.shape, depth.low, depth.high) == ([1, 256, 320], 0.0, 1.0)


def test_image_and_mask_are_resized_to_the_same_size_by_their_own_filters() -> None:
    image, mask = facts("masks_scale", "transform:Pillow resize")
    assert image["size"] == mask["size"]
    assert (image["resample"], mask["resample"]) == (2, 0)
    assert [one["image"]["mode"] for one in facts("masks_scale", "transform:Pillow crop")] == ["RGB", "L"]
    (scale,) = facts("masks_scale", "call:random.uniform")
    assert scale["arguments"] == [0.5, 2.0]
    assert image["size"] == [int(side * scale["value"]) for side in image["image"]["size"]]


def test_a_pipeline_of_webdataset_has_its_shards_and_steps() -> None:
    attributes = described("shards_webdataset")["dataset"]["attributes"]
    shards, *steps = attributes["pipeline"]
    assert shards["attributes"]["urls"] == [f"{DATA}/train-{number:04d}.tar" for number in range(4)]
    functions = [
        one["attributes"]["f"]["function"].rpartition(".")[2] for one in steps if "f" in one.get("attributes", {})
    ]
    assert functions[-3:] == ["_to_tuple", "_map_tuple", "_batched"]
    archives = {one["archive"] for one in facts("shards_webdataset", "lookup:tarfile member")}
    assert archives <= set(shards["attributes"]["urls"])


def test_a_dataset_of_hugging_face_has_its_features_and_the_transforms_of_its_function() -> None:
    attributes = described("hf_images")["dataset"]["attributes"]
    features = attributes["_info"]["attributes"]["features"]["dict"]
    assert features["label"]["attributes"]["names"] == ["beech", "larch", "maple", "spruce"]
    function = attributes["_format_kwargs"]["dict"]["transform"]
    assert function["function"] == "__main__.preprocess_train"
    names = transforms(function["globals"]["_train_transforms"])
    assert names == ["Resize", "CenterCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"]
    assert set(shapes(producer("hf_images").collated[0].output)) == {"pixel_values", "labels"}


def test_timms_loader_normalises_and_erases_behind_the_dataloader() -> None:
    found = described("timm_loader")
    assert found["collate"]["function"] == "timm.data.loader.fast_collate"
    assert found["wrapper"]["class"] == "timm.data.loader.PrefetchLoader"
    assert found["wrapper"]["attributes"]["mean"]["values"] == pytest.approx([123.675, 116.28, 103.53])
    assert found["wrapper"]["attributes"]["random_erasing"]["attributes"]["probability"] == 0.1
    assert shapes(producer("timm_loader").collated[0].output)["0"] == ("tensor", [8, 3, 192, 192], "uint8")
