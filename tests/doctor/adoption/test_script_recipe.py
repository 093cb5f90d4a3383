"""Recipes of scripts: what their datasets do is known from described objects and from their code, and runs."""

import numpy as np
import pytest
from made_recipes import CENTER, TENSOR, described_recipe, differences, image_folder, known, loaded, paired, recipe_of
from PIL import Image

from headrace.doctor.adoption import adopt, compare_with_script
from headrace.doctor.adoption.module import module_text
from headrace.doctor.adoption.observed import ScriptData
from headrace.doctor.adoption.script_recipe import ScriptRecipe
from headrace.doctor.adoption.stand_ins import Rebuilding
from headrace.doctor.edits import ScriptSource, ScriptSources, files_here
from headrace.doctor.measure import Join, TrainerView
from headrace.doctor.session import model, producers, trainers
from headrace.doctor.session.producers import OutputLeaf
from headrace.errors import UsageError

FOLDER = """
class Photos(Dataset):
    def __init__(self, root):
        self.classes = sorted(os.listdir(root))
        self.samples = [
            (os.path.join(root, name, file), label)
            for label, name in enumerate(self.classes)
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = Image.open(path).convert("RGB")
        STEP
        return pixels_of(image), label
"""
PAIRS = f"""{paired("Pairs", "jpg")}\
        return {{"image": pixels_of(image), "mask": torch.from_numpy(np.array(mask)).long(), "name": name}}
"""
LISTED = """
class Listed(Dataset):
    def __init__(self, root):
        self.root = root
        with open(os.path.join(root, "list.csv")) as file:
            self.rows = list(csv.DictReader(file))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        image = Image.open(os.path.join(self.root, row["file"])).convert("RGB").resize((32, 24), Image.BILINEAR)
        return {"pixels": np.array(image), "score": float(row["score"])}
"""
DEPTHS = """
class Depths(Dataset):
    def __init__(self, path):
        self.path, self.tar = path, None
        with tarfile.open(path) as tar:
            self.keys = sorted(name[:-8] for name in tar.getnames() if name.endswith(".rgb.png"))

    def __len__(self):
        return len(self.keys)

    def read(self, name):
        if self.tar is None:
            self.tar = tarfile.open(self.path)
        return Image.open(io.BytesIO(self.tar.extractfile(name).read()))

    def __getitem__(self, index):
        key = self.keys[index]
        depth = torch.from_numpy(np.array(self.read(key + ".depth.png")).astype(np.float32))[None] / 1000.0
        valid = (depth > 0) & (depth < 8)
        low, high = torch.quantile(depth[valid], torch.tensor([0.1, 0.9]))
        depth = ((depth - low) / (high - low) * 2 - 1).clip(-1, 1)
        depth[~valid] = 0
        return {"rgb": pixels_of(self.read(key + ".rgb.png").convert("RGB")), "depth": depth, "valid": valid}
"""


def picture(number, size=(40, 32)):
    coarse = np.random.default_rng(number).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(coarse).resize(size, Image.BICUBIC)


@pytest.fixture
def folder(tmp_path):
    for number in range(6):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(number).save(path)
    return tmp_path / "data"


def test_a_class_folder_read_by_pillow_and_numpy(folder, tmp_path):
    path = tmp_path / "folder_script.py"
    script = loaded(FOLDER.replace("STEP", "image = image.resize((24, 20), Image.BILINEAR)"), path)
    dataset = script.Photos(str(folder))
    recipe = recipe_of(dataset, path)
    assert (recipe.degree, recipe.source, recipe.view) == ("exact", "hr.open(SOURCE)", "[hr.Resize((20, 24))]")
    assert recipe.fields["label"] == "hr.Label()"
    found = differences(recipe, dataset)
    assert found["1"] == 0
    assert found["0"] < 1.01 / 255 / 0.22  # a level


def test_a_step_that_is_not_known_is_named_with_its_line(folder, tmp_path):
    path = tmp_path / "odd_script.py"
    script = loaded(FOLDER.replace("STEP", "image = image.effect_spread(3)"), path)
    recipe = recipe_of(script.Photos(str(folder)), path)
    line = path.read_text().split("\n").index("        image = image.effect_spread(3)") + 1
    assert recipe.degree == "draft"
    (part,) = recipe.unsure[:1]
    assert (part.part, part.place, part.certainty) == ("image.effect_spread(3)", f"odd_script.py:{line}", "python")
    assert f"check: odd_script.py:{line}" in module_text(recipe)


def test_blue_first_is_said(folder, tmp_path):
    path = tmp_path / "blue_script.py"
    text = FOLDER.replace('Image.open(path).convert("RGB")', "cv2.imread(path)").replace("STEP", "pass")
    script = loaded(f"import cv2\n{text}", path)
    recipe = recipe_of(script.Photos(str(folder)), path)
    assert recipe.degree == "draft"
    assert "blue, green, red" in recipe.unsure[0].note


def test_weighted_samples_are_said():
    weighted = known("torch.utils.data.sampler.WeightedRandomSampler", num_samples=8, replacement=True)
    assert described_recipe(image_folder("train", CENTER, TENSOR), sampler=weighted).degree == "draft"
    plain = known("torch.utils.data.sampler.RandomSampler", replacement=False, _num_samples=None)
    assert described_recipe(image_folder("train", CENTER, TENSOR), sampler=plain).degree == "exact"
    seeded = known("accelerate.data_loader.SeedableRandomSampler", replacement=False, _num_samples=None)
    assert described_recipe(image_folder("train", CENTER, TENSOR), sampler=seeded).degree == "exact"


def test_what_happens_now_and_then_is_drawn(folder, tmp_path):
    path = tmp_path / "flip_script.py"
    flip = "if random.random() < 0.3:\n            image = image.transpose(Image.FLIP_LEFT_RIGHT)"
    script = loaded(FOLDER.replace("STEP", flip), path)
    recipe = recipe_of(script.Photos(str(folder)), path)
    assert (recipe.degree, recipe.view) == ("exact", "[hr.RandomHorizontalFlip(p=0.3)]")


def test_images_and_masks_of_two_folders(tmp_path):
    for number in range(4):
        for name, made in (
            ("images", picture(number)),
            ("masks", picture(number).convert("L").point(lambda v: v // 64)),
        ):
            (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
            made.save(tmp_path / "data" / name / f"{number}.{'jpg' if name == 'images' else 'png'}")
    path = tmp_path / "pairs_script.py"
    dataset = loaded(PAIRS, path).Pairs(str(tmp_path / "data"))
    recipe = recipe_of(dataset, path)
    assert recipe.degree == "draft"  # which files have a partner is not known
    found = differences(recipe, dataset)
    assert found["mask"] == 0
    assert recipe.fields["name"] == "hr.Key()"
    assert found["image"] == pytest.approx(0, abs=1e-5)


def test_a_manifest_beside_its_files(folder, tmp_path):
    rows = [f"{file.parent.name}/{file.name},{number / 4}" for number, file in enumerate(sorted(folder.rglob("*.png")))]
    (folder / "list.csv").write_text("\n".join(["file,score", *rows]))
    path = tmp_path / "listed_script.py"
    dataset = loaded(LISTED, path).Listed(str(folder))
    recipe = recipe_of(dataset, path)
    assert recipe.source == "hr.open(MANIFEST, root=ROOT)"
    assert recipe.constants["MANIFEST"] == repr(str(folder / "list.csv")).replace("'", '"')
    found = differences(recipe, dataset)
    assert found["score"] == 0
    assert found["pixels"] <= 1


def test_depth_normalised_by_quantiles_out_of_a_tar(tmp_path):
    import io
    import tarfile

    with tarfile.open(tmp_path / "depth.tar", "w") as tar:
        for number in range(3):
            depth = np.random.default_rng(number).integers(500, 9000, (32, 40), np.uint16)
            depth[:4] = 0
            for name, made in ((f"{number}.rgb.png", picture(number)), (f"{number}.depth.png", Image.fromarray(depth))):
                target = io.BytesIO()
                made.save(target, "PNG")
                info = tarfile.TarInfo(name)
                info.size = target.tell()
                target.seek(0)
                tar.addfile(info, target)
    path = tmp_path / "depth_script.py"
    dataset = loaded(DEPTHS, path).Depths(str(tmp_path / "depth.tar"))
    recipe = recipe_of(dataset, path)
    assert recipe.fields["depth"] == (
        "hr.Depth(source='depth.png', scale=1 / 1000, far=8.0, normalize=hr.Quantiles(0.1, 0.9))"
    )
    assert recipe.degree == "draft"
    found = differences(recipe, dataset)
    dataset.tar.close()
    assert found["valid"] == 0
    assert found["depth"] < 1e-4
    assert found["rgb"] == pytest.approx(0, abs=1e-5)


def test_an_image_folder_needs_no_torchvision():
    recipe = described_recipe(image_folder("train", CENTER, TENSOR))
    assert recipe.degree == "exact"
    assert recipe.fields["image"] == "hr.Image(dtype='float32', channels_last=False)"
    assert (recipe.view, recipe.constants["SOURCE"]) == ("[hr.CenterCrop(24)]", '"train"')


@pytest.mark.parametrize(
    "odd",
    [
        known("torchvision.transforms.transforms.CenterCrop"),
        known("torchvision.transforms.transforms.Resize", size="__import__('os')", interpolation="bilinear"),
        known(
            "torchvision.transforms.transforms.Resize", size={"dict": {}}, interpolation={"cut": True, "class": "a.b"}
        ),
        {"class": "torchvision.transforms.transforms.Resize", "cut": True},
        {"function": "__main__.<lambda>"},
        known("train.Own", __class__="x"),
        {"class": "a.b", "again": "dataset.transform"},
        {"class": "a.b", "again": "nowhere"},
    ],
)
def test_a_part_that_cannot_be_read_is_one_to_check(odd):
    recipe = described_recipe(image_folder("train", CENTER, odd, TENSOR))
    assert recipe.degree == "draft"
    module_text(recipe)


def test_mixup_in_the_collate_function_is_the_loaders_own(tmp_path):
    path = tmp_path / "mixed.py"
    path.write_text("def collate(batch):\n    return mixup(*default_collate(batch))\n")
    path.write_text("from torch.utils.data import default_collate\n" + path.read_text())
    mixup = known("torchvision.transforms.v2._augment.MixUp", alpha=0.2, num_classes=2)
    collate = {"function": "mixed.collate", "file": str(path), "line": 2, "closure": {"mixup": mixup}}
    dataset = image_folder("train", CENTER, TENSOR)
    rebuilt = Rebuilding({"dataset": dataset, "collate": collate})
    seen = {
        "0": OutputLeaf("0", "tensor", [8, 3, 24, 24], "float32"),
        "1": OutputLeaf("1", "tensor", [8, 2], "float32"),
    }
    data = ScriptData({"described": {}, "batch_size": 8}, rebuilt, [], seen, True, [])
    recipe = ScriptRecipe(data, [ScriptSource(str(path), path.read_text())], files_here()).recipe()
    assert (recipe.degree, recipe.mixing) == ("exact", "hr.MixUp(alpha=0.2)")
    assert recipe.output == "(batch['image'], batch['label'])"


def test_shards_count_through():
    urls = [f"data/train-{number:03d}.tar" for number in range(3)]
    stages = [
        known("webdataset.shardlists.SimpleShardList", urls=urls),
        known("webdataset.filters.FilterFunction", f={"function": "webdataset.filters._to_tuple"}, args=["jpg", "cls"]),
        known(
            "webdataset.filters.FilterFunction",
            f={"function": "webdataset.filters._map_tuple"},
            args=[
                known("torchvision.transforms.transforms.Compose", transforms=[CENTER, TENSOR]),
                {"type": "builtins.int"},
            ],
        ),
    ]
    recipe = described_recipe(known("webdataset.compat.WebDataset", pipeline=stages))
    assert recipe.constants["SOURCE"] == '"data/train-{000..002}.tar"'
    assert recipe.output == "[batch['image'], batch['label']]"
    assert recipe.view == "[hr.CenterCrop(24)]"


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (known("torch.utils.data.dataset.TensorDataset", tensors=[]), "is not among the dataset classes"),
        ({"class": "a.b", "cut": True}, "holds no files"),
        ([1, 2, 3], "holds no files"),
    ],
)
def test_what_cannot_be_taken_says_why(dataset, reason):
    recipe = described_recipe(dataset)
    assert recipe.degree == "no"
    assert reason in recipe.reason


def test_foreign_names_stay_literals():
    name = "a'\"\n\\ {x} # \u2028"
    recipe = described_recipe(image_folder(name, CENTER, TENSOR))
    names = {}
    text = module_text(recipe)
    exec(text.split("def make_loader")[0], names)
    assert names["SOURCE"] == name


def session_of(described, batch):
    """Return a session of one trainer that waited for one DataLoader."""
    seen = producers.ObservedSample(0, 1, "", 10, output=batch)
    trainer = trainers.Trainer(7, "here", 0)
    trainer.loaders.append(trainers.LoaderFacts(3, {"described": described, "batch_size": 16}))
    trainer.passes.append(trainers.TrainerPass(0, 3, 0, 1, 0, [7]))
    outcome = model.CommandOutcome(["/usr/bin/python3", "-u", "train.py", "--lr", "1"], 0, "finished", 10)
    return model.Session(
        created="",
        mode="measure",
        headrace="",
        warmup=0,
        steps=1,
        outcome=outcome,
        trainers=[trainer],
        makers=[producers.BatchProducer(7, "here", 7, None, collated=[seen])],
    )


def adopted(described, batch=()):
    session = session_of(described, list(batch))
    return adopt(session, TrainerView.of(session, session.trainers[0], Join(session)), ScriptSources())


def test_a_session_becomes_a_module():
    batch = [OutputLeaf("0", "tensor", [16, 3, 24, 24], "float32"), OutputLeaf("1", "tensor", [16], "int64")]
    sampler = known("torch.utils.data.sampler.RandomSampler", replacement=False, _num_samples=None)
    described = {"dataset": image_folder("train", CENTER, TENSOR), "sampler": sampler, "drop_last": True}
    found = adopted(described, batch)
    recipe = found.recipe
    assert (recipe.degree, recipe.batch_size, recipe.shuffle, recipe.drop_last) == ("exact", 16, True, True)
    assert recipe.script == ("train.py", "--lr", "1")
    assert "def make_loader(" in found.module_text


def test_what_holds_itself_does_not_break_the_diagnosis():
    again = {"class": "torchvision.transforms.transforms.Compose", "again": "dataset.transform.transforms.1"}
    found = adopted({"dataset": image_folder("train", CENTER, {"class": "a.b", "attributes": {"x": again}}, again)})
    assert found.recipe.degree in ("draft", "no")


def test_a_session_without_descriptions_has_no_recipe():
    session = session_of({}, [])
    session.trainers[0].loaders[0].facts.pop("described")
    assert adopt(session, TrainerView.of(session, session.trainers[0], Join(session)), ScriptSources()) is None


@pytest.mark.parametrize("taken", ["loader", "loader.as_dataloader()"])
def test_a_script_that_has_adopted_the_loader_is_not_run_to_its_end(tmp_path, monkeypatch, taken):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "data" / "a" / "0.png")
    script = tmp_path / "train.py"
    script.write_text(
        "import headrace as hr\n"
        f"data = hr.open({str(tmp_path / 'data')!r})\n"
        "loader = hr.Loader(data, {'image': hr.Image(), 'label': hr.Label()}, batch_size=1)\n"
        f"for batch in {taken}:\n"
        "    raise RuntimeError('it trains')\n"
    )
    with pytest.raises(UsageError, match=r"got one that trains from headrace\.Loader already"):
        compare_with_script(None, None, [str(script)], dataset="ImageFolder")
