"""Small data in the layouts that public training scripts read, made from photographs."""

import csv
import io
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

SAMPLES = 40
SIZES = ((500, 375), (375, 500), (640, 427), (427, 640), (512, 512), (480, 360), (600, 450))
"""Width and height of the pictures, in turn."""


class Photos:
    """Pictures by number, each a part of a photograph."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.rglob("*.jpg"))

    def picture(self, number: int, size: tuple[int, int] | None = None) -> Image.Image:
        """Return a picture of a size, else of one of several sizes."""
        with Image.open(self._files[number % len(self._files)]) as photo:
            width, height = size or SIZES[number % len(SIZES)]
            by = max(width / photo.width, height / photo.height)
            grown = photo.convert("RGB").resize((round(photo.width * by + 0.5), round(photo.height * by + 0.5)))
            return grown.crop((0, 0, width, height))


def labels_of(picture: Image.Image, values: tuple[int, ...]) -> Image.Image:
    """Return a label picture: the regions of about equal brightness of a picture."""
    grey = np.asarray(picture.convert("L").filter(ImageFilter.GaussianBlur(6)), np.float64)
    ranks = np.searchsorted(np.quantile(grey, np.linspace(0, 1, len(values) + 1)[1:-1]), grey)
    return Image.fromarray(np.array(values, np.uint8)[ranks])


def depth_of(picture: Image.Image, near: float, far: float, missing: float = 0.02) -> np.ndarray:
    """Return depth in metres, 0 where none was measured."""
    grey = np.asarray(picture.convert("L").filter(ImageFilter.GaussianBlur(3)), np.float64) / 255
    slope = np.linspace(1, 0, grey.shape[0])[:, None]
    depth = near + (far - near) * (0.6 * slope + 0.4 * grey)
    depth[grey < np.quantile(grey, missing)] = 0
    return depth


def save(picture: Image.Image | np.ndarray, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    whole.save(path, **({"quality": 93} if path.suffix in (".jpg", ".jpeg", ".JPEG") else {}))
    return path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_rows(path: Path, rows: list[list[object]], delimiter: str = ",") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


def class_folders(
    photos: Photos, folder: Path, *, classes: int = 4, count: int = SAMPLES, ending: str = ".jpg", begin: int = 0
) -> None:
    for number in range(begin, begin + count):
        save(photos.picture(number), folder / f"n{number % classes:08d}" / f"photo_{number:05d}{ending}")


def splits(photos: Photos, folder: Path) -> None:
    """Write class folders for training, and fewer of other photographs for validation."""
    class_folders(photos, folder / "train")
    class_folders(photos, folder / "val", count=8, begin=SAMPLES)


def flat(photos: Photos, folder: Path, count: int = SAMPLES, ending: str = ".jpg", size=None, begin: int = 0) -> None:
    for number in range(count):
        save(photos.picture(begin + number, size), folder / f"photo_{number:05d}{ending}")


def pictures_and_masks(
    photos: Photos,
    pictures: Path,
    masks: Path,
    values: tuple[int, ...],
    *,
    endings: tuple[str, str] = (".jpg", ".png"),
    suffix: str = "",
    size: tuple[int, int] | None = None,
    count: int = SAMPLES,
) -> list[str]:
    """Write pictures and their label pictures, and return the names of both without an ending."""
    names = []
    for number in range(count):
        picture, name = photos.picture(number, size), f"photo_{number:05d}"
        save(picture, pictures / f"{name}{endings[0]}")
        save(labels_of(picture, values), masks / f"{name}{suffix}{endings[1]}")
        names.append(name)
    return names


def degraded_pairs(photos: Photos, low: Path, high: Path, count: int = SAMPLES, size=None, by: int = 1) -> None:
    """Write sharp pictures and blurred ones, these smaller by a factor."""
    for number in range(count):
        sharp = photos.picture(number, size)
        sharp = sharp.crop((0, 0, sharp.width // by * by, sharp.height // by * by))
        blurred = sharp.filter(ImageFilter.GaussianBlur(2)).resize((sharp.width // by, sharp.height // by))
        save(sharp, high / f"{number:04d}.png")
        save(blurred, low / f"{number:04d}.png")


CAPTIONS = ("a path through the woods", "mountains behind a lake", "sand and its shadows", "flowers, seen from near by")


def captions(number: int) -> str:
    return f"{CAPTIONS[number % len(CAPTIONS)]}, number {number}"


def captioned_csv(photos: Photos, folder: Path, delimiter: str, heads: tuple[str, str]) -> None:
    flat(photos, folder / "images")
    paths = sorted((folder / "images").iterdir())
    rows = [[str(path), captions(number)] for number, path in enumerate(paths)]
    write_rows(folder / "train.csv", [list(heads), *rows], delimiter)


def captioned_tars(photos: Photos, folder: Path, shards: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tarfile.open(folder / f"train-{shard:06d}.tar", "w") as tar:
            for number in range(shard, SAMPLES, shards):
                picture = io.BytesIO()
                photos.picture(number).save(picture, "JPEG", quality=93)
                for ending, data in (("jpg", picture.getvalue()), ("txt", captions(number).encode())):
                    member = tarfile.TarInfo(f"{number:06d}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def coco(photos: Photos, folder: Path, name: str) -> None:
    """Write pictures with boxes as COCO has them."""
    images, boxes = [], []
    for number in range(SAMPLES):
        picture = photos.picture(number)
        save(picture, folder / "images" / name / f"{number:012d}.jpg")
        images.append({"id": 100 + number, "file_name": f"{number:012d}.jpg", "width": picture.width})
        images[-1]["height"] = picture.height
        for box in range(1 + number % 3):
            at = [20 + 31 * box, 30 + 17 * box, 60 + number, 80 + 2 * number]
            area = at[2] * at[3]
            said = {"id": len(boxes), "image_id": 100 + number, "bbox": at, "category_id": 1 + box, "iscrowd": 0}
            boxes.append(
                {**said, "area": area, "segmentation": [[at[0], at[1], at[0] + 9, at[1] + 9, at[0], at[1] + 9]]}
            )
    kinds = [{"id": number, "name": f"kind {number}", "supercategory": "kind"} for number in range(1, 4)]
    write(
        folder / "annotations" / f"instances_{name}.json",
        json.dumps({"images": images, "annotations": boxes, "categories": kinds}),
    )


def darknet(photos: Photos, folder: Path) -> None:
    """Write pictures with boxes as YOLO's trainers have them."""
    paths = []
    for number in range(SAMPLES):
        paths.append(save(photos.picture(number), folder / "images" / f"{number:05d}.jpg"))
        boxes = [f"{box} {0.3 + 0.1 * box} {0.4 + 0.05 * box} 0.2 0.{2 + number % 4}" for box in range(1 + number % 3)]
        write(folder / "labels" / f"{number:05d}.txt", "\n".join(boxes) + "\n")
    for name in ("train.txt", "valid.txt"):
        write(folder / name, "".join(f"{path}\n" for path in paths))
    write(folder / "classes.names", "".join(f"kind {number}\n" for number in range(80)))
    names = f"names={folder}/classes.names\n"
    write(folder / "custom.data", f"classes=80\ntrain={folder}/train.txt\nvalid={folder}/valid.txt\n{names}")
