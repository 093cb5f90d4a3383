"""Public training scripts: where each lies, how it is run, and the function that makes its data."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import made_data as made
from made_data import Photos

Make = Callable[[Photos, Path, Path], None]
"""Takes the photographs, the folder for data, and the folder that the script runs in."""


@dataclass(frozen=True)
class Script:
    """A script of a repository, unmodified."""

    name: str
    kind: str
    repository: str
    commit: str
    script: str
    arguments: str
    """`{data}` stands for the folder of its data."""
    make: Make
    folder: str = "."
    """Folder of the repository that the script runs in."""
    is_launched: bool = False
    """Whether a launcher such as torchrun starts it."""
    reads_gradients: bool = False
    """Whether it reads gradients of its weights itself."""
    imports: str = ""
    """Folder of the repository from which it imports what it would have had installed."""


def folders(photos: Photos, data: Path, code: Path) -> None:
    made.splits(photos, data)


def two_folders(photos: Photos, data: Path, code: Path) -> None:
    made.flat(photos, data / "content")
    made.flat(photos, data / "style", begin=20)


def carvana(photos: Photos, data: Path, code: Path) -> None:
    made.pictures_and_masks(photos, code / "data/imgs", code / "data/masks", (0, 255), suffix="_mask", size=(480, 320))


def polyps(photos: Photos, data: Path, code: Path) -> None:
    made.pictures_and_masks(photos, data / "images", data / "masks", (0, 255))


def duts(photos: Photos, data: Path, code: Path) -> None:
    folder = code / "train_data/DUTS/DUTS-TR/DUTS-TR"
    made.pictures_and_masks(photos, folder / "im_aug", folder / "gt_aug", (0, 255))


def voc(photos: Photos, data: Path, code: Path) -> None:
    root = data / "VOCdevkit/VOC2012"
    names = made.pictures_and_masks(
        photos, root / "JPEGImages", root / "SegmentationClass", (0, 3, 15, 255), count=made.SAMPLES
    )
    for name in ("train", "val"):
        made.write(root / f"ImageSets/Segmentation/{name}.txt", "".join(f"{each}\n" for each in names))


def cityscapes(photos: Photos, data: Path, code: Path) -> None:
    for split in ("train", "val"):
        for number in range(made.SAMPLES if split == "train" else 8):
            picture = photos.picture(number, (1024, 512))
            below = f"{split}/bonn/bonn_{number:06d}_000019_"
            root = code / "data/cityscapes"
            made.save(picture, root / f"leftImg8bit_trainvaltest/leftImg8bit/{below}leftImg8bit.png")
            masks = root / f"gtFine_trainvaltest/gtFine/{below}gtFine_labelIds.png"
            made.save(made.labels_of(picture, (4, 7, 11, 21, 26)), masks)


def change(photos: Photos, data: Path, code: Path) -> None:
    root, names = code / "samples", []
    for number in range(made.SAMPLES):
        before, name = photos.picture(number, (512, 512)), f"tile_{number:04d}.png"
        made.save(before, root / "A" / name)
        made.save(photos.picture(number + 1, (512, 512)), root / "B" / name)
        made.save(made.labels_of(before, (0, 255)), root / "label" / name)
        names.append(name)
    for split in ("train", "val"):
        made.write(root / f"list/{split}.txt", "".join(f"{name}\n" for name in names))


def change_subset(photos: Photos, data: Path, code: Path) -> None:
    for split in ("train", "val"):
        for number in range(made.SAMPLES if split == "train" else 8):
            before, name = photos.picture(number, (256, 256)), f"{number:05d}.jpg"
            root = code.parent / "CDData/subset" / split
            made.save(before, root / "A" / name)
            made.save(photos.picture(number + 1, (256, 256)), root / "B" / name)
            made.save(made.labels_of(before, (0, 255)), root / "OUT" / name)


def nyu(photos: Photos, data: Path, code: Path) -> None:
    lines = []
    for number in range(made.SAMPLES):
        picture, scene = photos.picture(number, (640, 480)), f"kitchen_{number % 3:04d}"
        made.save(picture, data / scene / f"rgb_{number:05d}.jpg")
        depth = (made.depth_of(picture, 0.7, 9.5) * 1000).astype("uint16")
        made.save(depth, data / scene / f"sync_depth_{number:05d}.png")
        focal = (518.8579, 721.5377, 707.0912)[number % 3]
        lines.append(f"{scene}/rgb_{number:05d}.jpg {scene}/sync_depth_{number:05d}.png {focal}\n")
    made.write(data / "train.txt", "".join(lines))


def nyu_listed(photos: Photos, data: Path, code: Path) -> None:
    """Write the pictures that the repository's own lists name, and the lists' first lines."""
    for split, below in (("train", ""), ("test", "official_splits/test/")):
        path = code / f"code/dataset/filenames/nyudepthv2/{split}_list.txt"
        lines = path.read_text().splitlines()[: made.SAMPLES]
        for number, line in enumerate(lines):
            rgb, depth = (data / "nyu_depth_v2" / f"{below}{name.lstrip('/')}" for name in line.split()[:2])
            picture = photos.picture(number, (640, 480))
            made.save(picture, rgb)
            made.save((made.depth_of(picture, 0.7, 9.5) * 1000).astype("uint16"), depth)
        path.write_text("".join(f"{line}\n" for line in lines))


def virtual_kitti(photos: Photos, data: Path, code: Path) -> None:
    import cv2

    lines = []
    for number in range(made.SAMPLES):
        picture = photos.picture(number, (1242, 375))
        rgb = made.save(picture, data / f"rgb/rgb_{number:05d}.jpg")
        depth = data / f"depth/depth_{number:05d}.png"
        depth.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(depth), (made.depth_of(picture, 2, 120) * 100).astype("uint16"))
        lines.append(f"{rgb} {depth}\n")
    made.write(code / "dataset/splits/vkitti2/train.txt", "".join(lines))
    made.write(code / "dataset/splits/kitti/val.txt", "".join(lines[:4]))


def frames(photos: Photos, data: Path, code: Path) -> None:
    drive = "2011_09_26/2011_09_26_drive_0001_sync"
    for number in range(made.SAMPLES + 2):
        for side in (2, 3):
            picture = photos.picture(number + (side == 3), (1242, 375))
            made.save(picture, data / drive / f"image_0{side}/data/{number:010d}.jpg")
    lines = [f"{drive} {number} {'lr'[number % 2]}\n" for number in range(1, made.SAMPLES + 1)]
    for split in ("train", "val"):
        made.write(code / f"splits/eigen_zhou/{split}_files.txt", "".join(lines))


def clips(photos: Photos, data: Path, code: Path) -> None:
    labels, videos = [f"kind_{number}" for number in range(5)], {}
    for clip in range(36):
        label, name = labels[clip % 5], f"clip_{clip:03d}"
        for frame in range(1, 13):
            made.save(photos.picture(clip + frame, (340, 256)), data / "jpg" / label / name / f"image_{frame:05d}.jpg")
        subset = "training" if clip < 32 else "validation"
        videos[name] = {"subset": subset, "annotations": {"label": label, "segment": [1, 13]}}
    made.write(data / "annotations.json", json.dumps({"labels": labels, "database": videos}))
    (data / "results").mkdir()


def clip_csv(photos: Photos, data: Path, code: Path) -> None:
    made.captioned_csv(photos, data, "\t", ("filepath", "title"))


def flickr(photos: Photos, data: Path, code: Path) -> None:
    folder = code / "C:/Moein/AI/Datasets/Flicker-8k"
    made.flat(photos, folder / "Images", 110)
    rows = [[number, f"photo_{number:05d}.jpg", made.captions(number), number] for number in range(110)]
    made.write_rows(folder / "captions.csv", [["", "image", "caption", "id"], *rows])
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", *sorted({*" ".join(made.CAPTIONS).split(), "number"})]
    tokenizer = code / "distilbert-base-uncased"
    made.write(tokenizer / "vocab.txt", "\n".join([*words, *map(str, range(110))]))
    made.write(tokenizer / "config.json", json.dumps({"model_type": "distilbert"}))
    made.write(tokenizer / "tokenizer_config.json", json.dumps({"tokenizer_class": "DistilBertTokenizer"}))


def tars(photos: Photos, data: Path, code: Path) -> None:
    made.captioned_tars(photos, data)


def boxes(photos: Photos, data: Path, code: Path) -> None:
    for name in ("train2017", "val2017"):
        made.coco(photos, data, name)
        (data / name).symlink_to(data / "images" / name)


def darknet(photos: Photos, data: Path, code: Path) -> None:
    made.darknet(photos, data)


def gopro(photos: Photos, data: Path, code: Path) -> None:
    for split, count in (("train", made.SAMPLES), ("test", 4), ("valid", 4)):
        made.degraded_pairs(photos, data / split / "blur", data / split / "sharp", count, (640, 360))


def gopro_patches(photos: Photos, data: Path, code: Path) -> None:
    for split, count in (("train", made.SAMPLES), ("test", 4)):
        root = code / "Datasets/GoPro" / split
        made.degraded_pairs(photos, root / "input", root / "target", count, (512, 512))


def div2k(photos: Photos, data: Path, code: Path) -> None:
    made.flat(photos, code / "data/DIV2K_train_HR", ending=".png")
    made.flat(photos, code / "data/DIV2K_valid_HR", 15, ".png", begin=made.SAMPLES)
    for name in ("epochs", "statistics"):
        (code / name).mkdir()


def berkeley(photos: Photos, data: Path, code: Path) -> None:
    for split, begin in (("train", 0), ("test", made.SAMPLES)):
        made.flat(photos, code / "dataset/BSDS300/images" / split, size=(481, 321), begin=begin)


def aligned(photos: Photos, data: Path, code: Path) -> None:
    for split in ("train", "test"):
        for side, begin in (("a", 0), ("b", 1)):
            folder = code / "dataset/facades" / split / side
            made.flat(photos, folder, made.SAMPLES if split == "train" else 4, size=(300, 280), begin=begin)


def side_by_side(photos: Photos, data: Path, code: Path) -> None:
    for split in ("train", "test", "val"):
        made.flat(photos, code.parent.parent / "data/facades" / split, 20, size=(512, 256))


def horses(photos: Photos, data: Path, code: Path) -> None:
    for side, begin in (("A", 0), ("B", 17)):
        made.flat(photos, data / "train" / side, 36, size=(256, 256), begin=begin)


def attributes(photos: Photos, data: Path, code: Path) -> None:
    names = ("Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young", "Smiling")
    lines = ["2060", " ".join(names)]
    made.flat(photos, data / "all", 30, size=(178, 218))
    taken = sorted((data / "all").iterdir())
    (data / "images").mkdir()
    for number in range(2060):
        (data / f"images/{number:06d}.jpg").hardlink_to(taken[number % len(taken)])
        lines.append(f"{number:06d}.jpg " + " ".join("1" if number >> bit & 1 else "-1" for bit in range(len(names))))
    made.write(data / "attributes.txt", "\n".join(lines))


def chests(photos: Photos, data: Path, code: Path) -> None:
    lines = []
    for number in range(made.SAMPLES):
        name = f"{number:08d}_000.png"
        made.save(photos.picture(number, (512, 512)).convert("L"), code / "ChestX-ray14/images" / name)
        lines.append(f"{name} {' '.join(str(int(number % 14 == kind or number % 5 == kind)) for kind in range(14))}\n")
    made.write(code / "ChestX-ray14/labels/test_list.txt", "".join(lines))


def loose(photos: Photos, data: Path, code: Path) -> None:
    made.flat(photos, data / "images")


SCRIPTS = (
    Script(
        "imagenet",
        "classification",
        "pytorch/examples",
        "77f55b912142e11fcfdf5b530231fb9c52f181e8",
        "main.py",
        "-a resnet18 -b 4 -j 0 {data}",
        folders,
        "imagenet",
    ),
    Script(
        "timm",
        "classification",
        "huggingface/pytorch-image-models",
        "aa4b5850c1543fa488abf260f18390eda46cf85d",
        "train.py",
        "--data-dir {data} --model resnet18 -b 2 -j 1 --device cpu --num-classes 4",
        folders,
    ),
    Script(
        "unet",
        "segmentation",
        "milesial/Pytorch-UNet",
        "21d7850f2af30a9695bbeea75f3136aa538cfc4a",
        "train.py",
        "--epochs 9 --batch-size 2",
        carvana,
        reads_gradients=True,
    ),
    Script(
        "deeplab",
        "segmentation",
        "VainF/DeepLabV3Plus-Pytorch",
        "4e1087de98bc49d55b9239ae92810ef7368660db",
        "main.py",
        "--data_root {data} --crop_size 257 --batch_size 2",
        voc,
    ),
    Script(
        "pspnet",
        "segmentation",
        "yassouali/pytorch-segmentation",
        "33434fa987bbf348c961473c15f044b85e32ca7f",
        "train.py",
        "",
        cityscapes,
    ),
    Script(
        "pranet",
        "medical",
        "DengPingFan/PraNet",
        "95f12bd4e32ec954b5069654abae7de9473fd1f5",
        "MyTrain.py",
        "--train_path {data} --batchsize 2",
        polyps,
    ),
    Script(
        "u2net",
        "saliency",
        "xuebinqin/U-2-Net",
        "ac7e1c817ecab7c7dff5ce6b1abba61cd213ff29",
        "u2net_train.py",
        "",
        duts,
    ),
    Script(
        "chexnet",
        "medical",
        "arnoweng/CheXNet",
        "3d45ee77e2cfe6ec81bf1b87e2ed4e3fc10af6c1",
        "model.py",
        "",
        chests,
    ),
    Script(
        "bts",
        "depth",
        "cleinc/bts",
        "5e3406b35d1497b2e55d2dd600524d1f4efacaed",
        "bts_main.py",
        "--mode train --encoder resnet50_bts --dataset nyu --data_path {data} --gt_path {data} --filenames_file "
        "{data}/train.txt --batch_size 4 --input_height 416 --input_width 544 --do_random_rotate --degree 2.5 "
        "--log_directory {data}/log --gpu 0 --data_path_eval {data} --gt_path_eval {data} --filenames_file_eval "
        "{data}/train.txt",
        nyu,
        "pytorch",
    ),
    Script(
        "depth-anything",
        "depth",
        "DepthAnything/Depth-Anything-V2",
        "a561b849ebae10a6f5ef49e26c83cbbcd36c71bf",
        "train.py",
        "--encoder vits --img-size 196 --bs 1 --dataset vkitti --save-path {data}/saved --max-depth 80",
        virtual_kitti,
        "metric_depth",
        is_launched=True,
    ),
    Script(
        "glpdepth",
        "depth",
        "vinvino02/GLPDepth",
        "a048528313ecc319ed8a93383273681486be7fbd",
        "code/train.py",
        "--dataset nyudepthv2 --data_path {data} --batch_size 4 --workers 0",
        nyu_listed,
    ),
    Script(
        "monodepth2",
        "depth, frames",
        "nianticlabs/monodepth2",
        "b676244e5a1ca55564eb5d16ab521a48f823af31",
        "train.py",
        "--data_path {data} --log_dir {data}/log --num_workers 0 --weights_init scratch",
        frames,
    ),
    Script(
        "3d-resnets",
        "video frames",
        "kenshohara/3D-ResNets-PyTorch",
        "540a0ea1abaee379fa3651d4d5afbd2d667a1f49",
        "main.py",
        "--root_path {data} --video_path jpg --annotation_path annotations.json --result_path results --dataset ucf101 "
        "--n_classes 5 --sample_duration 8 --model resnet --model_depth 18 --n_threads 1 --batch_size 4 --no_cuda "
        "--no_val",
        clips,
    ),
    Script(
        "open-clip-csv",
        "image and text",
        "mlfoundations/open_clip",
        "89fb801f1e6087880e951fc8354b8a2077b79c6d",
        "-m open_clip_train.main",
        "--train-data {data}/train.csv --dataset-type csv --model RN50 --batch-size 4 --workers 0 --device cpu "
        "--logs {data}/logs",
        clip_csv,
        "src",
    ),
    Script(
        "open-clip-tars",
        "webdataset",
        "mlfoundations/open_clip",
        "89fb801f1e6087880e951fc8354b8a2077b79c6d",
        "-m open_clip_train.main",
        "--train-data {data}/train-{{000000..000001}}.tar --dataset-type webdataset --train-num-samples 40 --model "
        "RN50 --batch-size 4 --workers 0 --device cpu --logs {data}/logs",
        tars,
        "src",
    ),
    Script(
        "clip-simple",
        "image and text",
        "moein-shariatnia/OpenAI-CLIP",
        "73fea1f9b71a4982997ea4c75070a845b547abef",
        "main.py",
        "",
        flickr,
    ),
    Script(
        "detr",
        "detection",
        "facebookresearch/detr",
        "29901c51d7fe8712168b8d0d64351170bc0f83e0",
        "main.py",
        "--coco_path {data} --device cpu --num_workers 0 --output_dir {data}/out",
        boxes,
    ),
    Script(
        "yolov3",
        "detection",
        "eriklindernoren/PyTorch-YOLOv3",
        "1d621c8489e22c76ceb93bb2397ac6c8dfb5ceb7",
        "-m pytorchyolo.train",
        "-m config/yolov3-tiny.cfg -d {data}/custom.data --n_cpu 0",
        darknet,
    ),
    Script(
        "simsiam",
        "two views",
        "facebookresearch/simsiam",
        "a7bc1772896d0dad0806c51f0bb6f3b16d290468",
        "main_simsiam.py",
        "-a resnet18 -b 8 -j 0 --multiprocessing-distributed --world-size 1 --rank 0 --dist-url tcp://localhost:10001 "
        "--fix-pred-lr {data}",
        folders,
    ),
    Script(
        "supcon",
        "two views",
        "HobbitLong/SupContrast",
        "66a8fe53880d6a1084b2e4e0db0a019024d6d41a",
        "main_supcon.py",
        "--dataset path --data_folder {data}/train --mean (0.5,0.5,0.5) --std (0.25,0.25,0.25) --size 64 --model "
        "resnet18 --batch_size 8 --num_workers 0",
        folders,
    ),
    Script(
        "barlowtwins",
        "two views",
        "facebookresearch/barlowtwins",
        "8e8d284ca0bc02f88b92328e53f9b901e86b4a3c",
        "main.py",
        "{data} --workers 0 --batch-size 8 --projector 64-64 --checkpoint-dir {data}/saved",
        folders,
    ),
    Script(
        "dino",
        "multi-crop",
        "facebookresearch/dino",
        "7c446df5b9f45747937fb0d72314eb9f7b66930a",
        "main_dino.py",
        "--arch vit_tiny --data_path {data}/train --output_dir {data} --num_workers 0 --batch_size_per_gpu 4 --out_dim "
        "256",
        folders,
    ),
    Script(
        "swav",
        "multi-crop",
        "facebookresearch/swav",
        "06b1b7cbaf6ba2a792300d79c7299db98b93b7f9",
        "main_swav.py",
        "--data_path {data}/train --nmb_crops 2 4 --size_crops 224 96 --min_scale_crops 0.14 0.05 --max_scale_crops 1 "
        "0.14 --dump_path {data} --workers 0 --batch_size 4 --arch resnet50 --dist_url tcp://localhost:10002 "
        "--use_fp16 false",
        folders,
        is_launched=True,
    ),
    Script(
        "diffusion",
        "generation",
        "huggingface/diffusers",
        "58eb52c0803ea9af3abec60841c2a093bdf1f951",
        "train_unconditional.py",
        "--train_data_dir {data}/images --resolution 64 --random_flip --train_batch_size 4 --output_dir {data}/out",
        loose,
        "examples/unconditional_image_generation",
    ),
    Script(
        "mimo-unet",
        "deblurring",
        "chosj95/MIMO-UNet",
        "5c580135ed1c03344ac9c741267324ff90b5f209",
        "main.py",
        "--mode train --data_dir {data} --num_worker 0 --batch_size 2",
        gopro,
    ),
    Script(
        "mprnet",
        "deblurring",
        "swz30/MPRNet",
        "43feb2aed45f5e0b9082c78c8c455160e30a3a82",
        "train.py",
        "",
        gopro_patches,
        "Deblurring",
        imports="pytorch-gradual-warmup-lr",
    ),
    Script(
        "srgan",
        "super-resolution",
        "leftthomas/SRGAN",
        "7ddfdf27273c42d858ec52cab5ca1cbfca81d0be",
        "train.py",
        "",
        div2k,
    ),
    Script(
        "espcn",
        "super-resolution",
        "pytorch/examples",
        "77f55b912142e11fcfdf5b530231fb9c52f181e8",
        "main.py",
        "--upscale_factor 2 --batchSize 4 --nEpochs 40",
        berkeley,
        "super_resolution",
    ),
    Script(
        "bit-cd",
        "remote sensing",
        "justchenhao/BIT_CD",
        "adcd7aea6f234586ffffdd4e9959404f96271711",
        "main_cd.py",
        "--data_name quick_start --num_workers 0 --batch_size 2",
        change,
    ),
    Script(
        "snunet-cd",
        "remote sensing",
        "likyoo/Siam-NestedUNet",
        "aed3f1833f3d9d3eccba8c894fd097f358b5329e",
        "train.py",
        "",
        change_subset,
    ),
    Script(
        "pix2pix",
        "aligned pairs",
        "mrzhu-cool/pix2pix-pytorch",
        "85caf054bbd4e8c1112c124373770ed0f63201cd",
        "train.py",
        "--dataset facades --threads 0",
        aligned,
    ),
    Script(
        "pix2pix-halves",
        "aligned pairs",
        "eriklindernoren/PyTorch-GAN",
        "36d3c77e5ff20ebe0aeefd322326a134a279b93e",
        "pix2pix.py",
        "--n_cpu 0",
        side_by_side,
        "implementations/pix2pix",
    ),
    Script(
        "cyclegan",
        "unpaired",
        "aitorzip/PyTorch-CycleGAN",
        "67da8f9e2b69bd68763451803c7700aaccc92f18",
        "train",
        "--dataroot {data} --n_cpu 0",
        horses,
    ),
    Script(
        "dcgan",
        "generation",
        "pytorch/examples",
        "77f55b912142e11fcfdf5b530231fb9c52f181e8",
        "main.py",
        "--dataset folder --dataroot {data}/train --batchSize 4 --workers 0 --outf {data}",
        folders,
        "dcgan",
    ),
    Script(
        "stargan",
        "attributes",
        "yunjey/stargan",
        "94dd002e93a2863d9b987a937b85925b80f7a19f",
        "main.py",
        "--celeba_image_dir {data}/images --attr_path {data}/attributes.txt --use_tensorboard false --num_workers 0 "
        "--batch_size 4 --log_dir {data} --model_save_dir {data} --sample_dir {data} --result_dir {data}",
        attributes,
    ),
    Script(
        "adain",
        "style transfer",
        "naoto0804/pytorch-AdaIN",
        "47950d0e6656a95a80a4b105c4c0f58d38ef785c",
        "train.py",
        "--batch_size 2 --content_dir {data}/content --style_dir {data}/style --n_threads 0 --log_dir {data}/log "
        "--save_dir {data}/out",
        two_folders,
    ),
)
