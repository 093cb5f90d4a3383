"""Reported faults of the data of public projects: where they are, and the smallest program that runs their pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import made_data as made
from made_data import Photos
from PIL import Image

Change = tuple[str, str, str]
"""A file, and its text before and after."""


@dataclass(frozen=True)
class ReportedFault:
    """Fault of a project. `mend` replaces the commit of the fix where there is none."""

    name: str
    repository: str
    number: int
    """Issue or pull request."""
    code: str
    commit: str
    paths: tuple[str, ...]
    make: Callable[[Photos, Path], object]
    runner: str
    fixed: str = ""
    mend: tuple[Change, ...] = ()
    compatibility: tuple[Change, ...] = ()
    """Changes for the present versions of libraries, before and after the fix."""
    imports: str = ""
    resumes: bool = False


def labelled(photos: Photos, data: Path) -> None:
    made.pictures_and_masks(photos, data / "images", data / "masks", (0, 1, 2, 5))


def people(photos: Photos, data: Path) -> None:
    for split in ("train", "test"):
        made.class_folders(photos, data / split)


def nuclei(photos: Photos, data: Path) -> None:
    made.pictures_and_masks(photos, data / "images", data / "masks/0", (0, 255), endings=(".png", ".png"))


def turned(photos: Photos, data: Path) -> None:
    """Make a released dataset of Darwin; every other picture is stored lying, as phones do."""
    release = data / "set/releases/latest"
    for number in range(made.SAMPLES):
        name, exif = f"photo_{number:05d}", Image.Exif()
        picture = made.save(photos.picture(number, (480, 360)), data / f"set/images/{name}.jpg")
        exif[0x0112] = 6 if number % 2 else 1
        with Image.open(picture) as plain:
            plain.save(picture, exif=exif, quality=93)
        slot = {"type": "image", "slot_name": "0", "source_files": [{"file_name": picture.name, "url": ""}]}
        item = {"name": picture.name, "path": "/", "slots": [slot]}
        tag = {"id": str(number), "name": f"kind {number % 3}", "tag": {}, "slot_names": ["0"], "properties": []}
        made.write(
            release / f"annotations/{name}.json", json.dumps({"version": "2.0", "item": item, "annotations": [tag]})
        )
    made.write(release / "lists/classes_tag.txt", "kind 0\nkind 1\nkind 2\n")


def objects(photos: Photos, data: Path) -> None:
    made.pictures_and_masks(photos, data, data, (0, 255), size=(320, 280))


def radiographs(photos: Photos, data: Path) -> None:
    made.flat(photos, data / "images", size=(256, 256))
    for name, numbers in (("train", range(32)), ("val", range(32, 40))):
        lines = (f"photo_{number:05d}.jpg {number % 2} {number // 2 % 2}" for number in numbers)
        made.write(data / f"{name}.txt", "\n".join(lines) + "\n")


def nothing(photos: Photos, data: Path) -> None:
    """Make no files: the program makes its own."""


FAULTS = (
    ReportedFault(
        "unet",
        "milesial/Pytorch-UNet",
        311,
        "invented-labels",
        "4f283f1b7e47992a2af1bc738c54562d5cd117c8",
        ("utils",),
        labelled,
        """
import sys
from utils.data_loading import BasicDataset

data = BasicDataset(sys.argv[1] + "/images", sys.argv[1] + "/masks", 0.5)
list(train(DataLoader(data, 1, shuffle=True)))
""",
        "8f317cb13c17ef25a86b25a0c24390e04cd4db82",
    ),
    ReportedFault(
        "triplets",
        "avilash/pytorch-siamese-triplet",
        9,
        "channel-order",
        "c4f88b4f84cff02792118e90aabd8eedff603c2e",
        ("dataloader", "config"),
        people,
        """
import sys
from argparse import Namespace
from config.base_config import cfg
from dataloader.triplet_img_loader import get_loader

cfg.DATASETS.CUSTOM.HOME = sys.argv[1]
args = Namespace(cuda=False, dataset="custom", num_train_samples=60, num_test_samples=8, batch_size=4)
list(train(get_loader(args)[0]))
""",
        mend=tuple(
            ("dataloader/triplet_img_loader.py", f"cv2.imread(img{n}_pth)", f"cv2.imread(img{n}_pth)[..., ::-1].copy()")
            for n in (1, 2, 3)
        ),
    ),
    ReportedFault(
        "nested-unet",
        "4uiiurz1/pytorch-nested-unet",
        62,
        "normalized-twice",
        "557ea02f0b5d45ec171aae2282d2cd21562a633e",
        ("dataset.py",),
        nuclei,
        """
import os
import sys
import albumentations
from dataset import Dataset

names = sorted(name[:-4] for name in os.listdir(sys.argv[1] + "/images"))
transform = albumentations.Compose(
    [albumentations.HorizontalFlip(), albumentations.Resize(96, 96), albumentations.Normalize()]
)
data = Dataset(names, sys.argv[1] + "/images", sys.argv[1] + "/masks", ".png", ".png", 1, transform)
list(train(DataLoader(data, 4, shuffle=True)))
""",
        mend=(("dataset.py", "img = img.astype('float32') / 255", "img = img.astype('float32')"),),
    ),
    ReportedFault(
        "simclr",
        "Spijkervet/SimCLR",
        26,
        "same-order",
        "654f05f107ce17c0a9db385f298a2dc6f8b3b870",
        ("main.py", "model.py", "modules", "utils", "config"),
        nothing,
        """
import sys
import types
from argparse import Namespace
import torchvision

class Small(torchvision.datasets.FakeData):
    def __init__(self, folder, download, transform):
        super().__init__(16, (3, 32, 32), 4, transform)

torchvision.datasets.CIFAR10 = Small
torch.nn.Module.cuda = torch.Tensor.cuda = lambda self, *args, **kwargs: self
torch.nn.SyncBatchNorm.convert_sync_batchnorm = lambda model: model
torch.cuda.set_device = lambda device: None
tensorboard = sys.modules["torch.utils.tensorboard"] = types.ModuleType("torch.utils.tensorboard")
tensorboard.SummaryWriter = lambda: Namespace(add_scalar=lambda *args: None)
import main
from utils import yaml_config_hook

main.DDP = lambda model, device_ids: model
main.dist.init_process_group = lambda *args, **kwargs: None
args = Namespace(**yaml_config_hook("./config/config.yaml"))
vars(args).update(nodes=2, nr=0, gpus=1, world_size=1, dataset="CIFAR10", image_size=32, batch_size=4, epochs=9)
vars(args).update(workers=0, dataparallel=0, resnet="resnet18", model_path=sys.argv[1], device=torch.device("cpu"))
vars(args).update(reload=False)
main.main(0, args)
""",
        "de910aec1c8c5d2451e204add9ad384a4835e25c",
    ),
    ReportedFault(
        "accelerate",
        "huggingface/accelerate",
        4071,
        "repeated-after-resume",
        "2f87576d329d12128c819b3f9e681fbe8c5d21de",
        ("src",),
        nothing,
        """
import sys
from accelerate import Accelerator, DataLoaderConfiguration

accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
loader = DataLoader(torch.arange(80.0).reshape(-1, 1), 4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-6), loader)
begin, skipped = 0, 0
if sys.argv[2:]:
    accelerator.load_state(sys.argv[1] + "/state")
    begin, skipped = 1, 12
for epoch in range(begin, 2):
    loader.set_epoch(epoch)
    passed = accelerator.skip_first_batches(loader, skipped) if epoch == begin and skipped else loader
    for number, batch in enumerate(passed):
        optimizer.zero_grad()
        accelerator.backward(model(batch).mean())
        optimizer.step()
        if epoch == 1 and number == 11 and not skipped:
            accelerator.save_state(sys.argv[1] + "/state")
""",
        "26d16dea23ca7d71cd5ab6f6a7a71e5ee9b162bd",
        imports="src",
        resumes=True,
    ),
    ReportedFault(
        "darwin",
        "v7labs/darwin-py",
        924,
        "ignored-orientation",
        "3b238700a6ed8e05352c1ccf1417da82ed704c55",
        ("darwin",),
        turned,
        """
import sys
from pathlib import Path
from torchvision import transforms
from darwin.torch.dataset import ClassificationDataset

sizes = [transforms.Resize((96, 96)), transforms.ToTensor()]
data = ClassificationDataset(dataset_path=Path(sys.argv[1]) / "set", transform=sizes)
list(train(DataLoader(data, 4, shuffle=True)))
""",
        "c0888e1f70fbcda11edd993316cc45b7fa56c77c",
    ),
    ReportedFault(
        "torchsig",
        "TorchDSP/torchsig",
        343,
        "same-draws",
        "1dd68d3abfba20461f1652ed837efd93900ac7bb",
        ("torchsig",),
        nothing,
        """
import sys
import types

class Spectrogram:
    def __init__(self, n_fft, hop_length, **options):
        self.n_fft, self.hop = n_fft, hop_length

    def __call__(self, samples):
        window = torch.hann_window(self.n_fft)
        return torch.stft(samples, self.n_fft, self.hop, window=window, center=False, return_complex=True).abs()

audio = sys.modules["torchaudio"] = types.ModuleType("torchaudio")
audio.transforms = types.SimpleNamespace(Spectrogram=Spectrogram)
from torchsig.datasets.dataset_metadata import NarrowbandMetadata
from torchsig.datasets.narrowband import NewNarrowband

try:
    from torchsig.utils.data_loading import WorkerSeedingDataLoader as DataLoader
except ImportError:  # before the fix
    pass
classes = ["2fsk", "4fsk", "bpsk", "qpsk"]
metadata = NarrowbandMetadata(2048, 64, impairment_level=0, class_list=classes, num_samples=400)
loader = DataLoader(NewNarrowband(metadata), batch_size=4, num_workers=2, collate_fn=lambda samples: [
    torch.stack([torch.from_numpy(data) for data, _ in samples])
])
list(train(loader, 1))
""",
        "9c3b8b03719f9a2b36704cb1a087e9d0982bd03a",
    ),
    ReportedFault(
        "chexnet",
        "zoogzog/chexnet",
        27,
        "augmented-evaluation",
        "bbe30b5e0d2941491a2c5a095cb572dca1d27158",
        ("ChexnetTrainer.py", "DatasetGenerator.py", "DensenetModels.py"),
        radiographs,
        """
import sys

torch.nn.Module.cuda = torch.Tensor.cuda = lambda self, *args, **kwargs: self
from ChexnetTrainer import ChexnetTrainer

folder = sys.argv[1]
lists = [f"{folder}/{name}.txt" for name in ("train", "val")]
ChexnetTrainer.train(folder + "/images", *lists, "DENSE-NET-121", False, 2, 8, 5, 256, 64, "now", None)
""",
        mend=(
            (
                "ChexnetTrainer.py",
                "pathDatasetFile=pathFileVal, transform=transformSequence",
                "pathDatasetFile=pathFileVal, transform=transforms.Compose("
                "[transforms.CenterCrop(transCrop), transforms.ToTensor(), normalize])",
            ),
        ),
        compatibility=(
            ("ChexnetTrainer.py", "sklearn.metrics.ranking", "sklearn.metrics"),
            ("ChexnetTrainer.py", "async", "non_blocking"),
            ("ChexnetTrainer.py", "def epochVal (", "@torch.no_grad()\n    def epochVal ("),
            ("ChexnetTrainer.py", ", volatile=True", ""),
            ("ChexnetTrainer.py", ".data[0]", ".item()"),
            ("ChexnetTrainer.py", "num_workers=24", "num_workers=2"),
        ),
    ),
    ReportedFault(
        "cascade",
        "hkchengrex/CascadePSP",
        17,
        "misaligned",
        "465069873aee0139b531e5026802e3310db93d3b",
        ("dataset", "util"),
        objects,
        """
import sys
import types

sys.modules["progressbar"] = types.ModuleType("progressbar")
from dataset.online_dataset import OnlineTransformDataset

list(train(DataLoader(OnlineTransformDataset(sys.argv[1], method=1), 4, shuffle=True)))
""",
        "ccaa944c53f8b0f0a6eaef781522b39af190eaf9",
    ),
)
