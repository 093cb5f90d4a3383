"""The loaders that are measured: facts and no code of theirs, so that any environment can read them."""

from dataclasses import dataclass, field
from types import MappingProxyType

NOTHING = MappingProxyType({})


@dataclass(frozen=True)
class Peer:
    """One loader, in one form of the data.

    `module`, `variant`: the module of loaders/, and what it is handed.
    `packages`: whose versions are recorded, the loader's own first.
    `form`: what the photographs must be turned into beforehand; None: the folder is read as it is.
    `refuses`: task names that it has no way to do, each with the reason.
    `decoded`: whether that form holds pixels, so that nothing is left to decode.
    `differs`: what must be known to compare its figures with another's.
    `start_up`: whether it is measured over 1,000,000 samples too.
    """

    name: str
    module: str
    packages: tuple[str, ...]
    differs: str
    variant: str = ""
    form: str | None = None
    environment: str = "main"
    refuses: dict[str, str] = field(default_factory=lambda: NOTHING)
    decoded: bool = False
    start_up: bool = True


TURBO_REFUSES = dict.fromkeys(("train-uint8", "validate-uint8"), "its array path gives normalised floats only") | {
    "validate-float32": "its array path has no Resize + CenterCrop: it squashes to the output's size"
}
TORCHVISION = ("torchvision", "torch")

OWN = Peer(
    "headrace",
    "headrace",
    ("headrace", "torch"),
    "Decodes the window only; triangle filter; NCHW shape over channels-last memory.",
    variant="folder",
)

PEERS = (
    Peer(
        "headrace-tar",
        "headrace",
        ("headrace", "torch"),
        "The same from one tar, read in place by an index beside it.",
        variant="tar",
        form="a tar and its index",
    ),
    *(
        Peer(
            f"headrace-pack-{variant}",
            "headrace",
            ("headrace", "torch"),
            f"The same from a pack of {form}, resized beforehand to a short side of 256.",
            variant=variant,
            form=f"tars of {form}, short side 256",
            decoded=decoded,
            start_up=False,
        )
        for variant, form, decoded in (
            ("jpeg", "JPEGs, quality 90", False),
            ("yuv420", "component planes", True),
            ("raw", "pixels", True),
        )
    ),
    Peer(
        "torchvision-v1",
        "torchvision",
        (*TORCHVISION, "pillow"),
        "What most scripts do: `ImageFolder`, Pillow, transforms v1, two worker processes. Whole image decoded, "
        "antialiased.",
        variant="v1",
        start_up=False,
    ),
    Peer(
        "torchvision-v2",
        "torchvision",
        TORCHVISION,
        "`ImageFolder`, `decode_jpeg` and transforms v2 on tensors, two worker processes. Whole image decoded, "
        "antialiased.",
        variant="v2",
    ),
    Peer(
        "dali",
        "dali",
        ("nvidia-dali-cuda130",),
        "On the CPU, two threads. Decodes the window for training and the whole image for validation; triangular "
        "filter; uint8 is NHWC. Its window comes from its own sampler. What it is built for, decoding on a GPU, is "
        "not measured here.",
    ),
    Peer(
        "ffcv-jpeg",
        "ffcv",
        ("ffcv", "torch", "numba"),
        "Every image re-encoded at quality 95 beforehand, so its pixels are not those of the files. Whole image "
        "decoded, `cv2.resize` with INTER_AREA; validation crops 224/256 of the short side, then resizes. Two threads; "
        "compiles its pipeline before the first batch.",
        variant="jpeg",
        form="a .beton of JPEGs, quality 95",
        environment="ffcv",
    ),
    Peer(
        "ffcv-raw",
        "ffcv",
        ("ffcv", "torch", "numba"),
        "As ffcv-jpeg, but pixels are stored, at full size: nothing is left to decode, and the data must "
        "fit into the page cache to keep its speed.",
        variant="raw",
        form="a .beton of pixels",
        decoded=True,
        environment="ffcv",
    ),
    Peer(
        "ffcv-raw-256",
        "ffcv",
        ("ffcv", "torch", "numba"),
        "As ffcv-raw, with images resized beforehand to a long side of 256: a random crop then has less detail than "
        "from the files.",
        variant="raw-256",
        form="a .beton of pixels, long side 256",
        decoded=True,
        environment="ffcv",
        start_up=False,
    ),
    Peer(
        "spdl",
        "spdl",
        ("spdl-io", "spdl-core", "torch"),
        "FFmpeg decodes the whole image and crops and scales by a filter graph; its bilinear scaler; two threads. It "
        "has no random crop: the window is drawn in Python, as torchvision does. uint8 is NHWC; float32 is made by "
        "torch, a batch at a time.",
    ),
    Peer(
        "turboloader",
        "turboloader",
        ("turboloader",),
        "Reads a tar; decodes the window; antialiased; gives indices, and labels are looked up. Threads of its own "
        "choice.",
        variant="tar",
        form="a tar",
        refuses=TURBO_REFUSES,
    ),
    Peer(
        "turboloader-raw",
        "turboloader",
        ("turboloader",),
        "Images decoded and squashed to 256×256 beforehand; the crop is made from these, not antialiased.",
        variant="raw",
        form="a .tbl of pixels, 256×256",
        decoded=True,
        refuses=TURBO_REFUSES,
    ),
    Peer(
        "webdataset",
        "webdataset",
        ("webdataset", *TORCHVISION),
        "Reads shards from front to back and shuffles within a buffer of 1,000 samples a worker; decoding and "
        "transforms as torchvision-v2, two worker processes.",
        form="16 tars",
    ),
    Peer(
        "litdata",
        "litdata",
        ("litdata", *TORCHVISION),
        "Shuffles chunks, and items within windows of a chunk; decoding and transforms as torchvision-v2, two worker "
        "processes.",
        form="chunks of 64 MB",
    ),
    Peer(
        "streaming",
        "streaming",
        ("mosaicml-streaming", *TORCHVISION),
        "Shuffles within blocks of shards; decoding and transforms as torchvision-v2, two worker processes.",
        form="MDS shards of 64 MiB",
    ),
    Peer(
        "grain",
        "grain",
        ("grain", *TORCHVISION),
        "Decoding and transforms as torchvision-v2, two worker processes that are spawned, not forked.",
    ),
)

OWN_RECIPES = Peer(
    "headrace",
    "recipe_headrace",
    ("headrace",),
    "Decodes the window only; triangle filter. Segmentation draws one scale a batch.",
)
RECIPE_PEERS = (
    Peer(
        "torchvision",
        "recipe_torchvision",
        TORCHVISION,
        "`decode_jpeg` of the whole image, transforms v2 on uint8 tensors, antialiased, two worker processes. "
        "RandAugment is bilinear. Blur has 23 pixels in SimCLR (its paper's tenth of a side), 9 in DINO (as DINOv2).",
    ),
    Peer(
        "dali",
        "recipe_dali",
        ("nvidia-dali-cuda130",),
        "On the CPU, two threads; NHWC. Single crops are decoded by their window, several from one decode of the whole "
        "image; triangular filter. Colour is one matrix (`color_twist`): its contrast is about a fixed grey, its hue a "
        "rotation in YIQ, in one order, rounded once. RandAugment is its own `auto_aug`. Photometric distortion is "
        "`color_twist`, too, without its permutation of channels.",
        refuses=dict.fromkeys(("mixup-float32", "cutmix-float32"), "it has no such operation"),
    ),
    Peer(
        "albumentations",
        "recipe_albumentations",
        ("albumentations", "opencv-python-headless", "torch"),
        "Whole image by `cv2.imread`, INTER_LINEAR without antialiasing, two worker processes. RandAugment is put "
        "together of its own operations by `SomeOf`; photometric distortion is its ColorJitter at even chance.",
        refuses=dict.fromkeys(("mixup-float32", "cutmix-float32"), "it mixes no batches"),
    ),
)
"""Of ../recipes.py. Each loader's own pixels are what `differs` says."""

BY_NAME = {peer.name: peer for peer in (OWN, *PEERS)}
KNOWN = BY_NAME | {peer.module: peer for peer in (OWN_RECIPES, *RECIPE_PEERS)}
"""All that measure.py can run: those of recipes by their modules, as some names are taken."""
