"""Calls of Pillow, OpenCV, numpy and torch inside a dataset's `__getitem__`, and the value that each returns."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from .random_crops import cropped_box, cropping_call, scaled_size
from .sample_values import (
    ArrayFile,
    Cell,
    Computed,
    DrawnNumber,
    DrawnWindow,
    FilePath,
    ModuleName,
    Picture,
    Quantile,
    TableColumn,
    TokenizedText,
    Validity,
    is_known,
    joined_path,
)
from .stand_ins import EnumStandIn, FunctionStandIn, StandIn, TableStandIn

if TYPE_CHECKING:
    from .sample_expressions import ExpressionReader

TRANSFORM_LIBRARIES = ("torchvision", "timm", "albumentations", "torch", "kornia")
_TOKENIZER_LIBRARIES = ("transformers", "tokenizers", "sentencepiece", "tiktoken", "open_clip")
_READERS = ("PIL.Image.open", "torchvision.io.read_image", "torchvision.io.decode_image", "torchvision.io.decode_jpeg")
_LOADERS = ("default_loader", "pil_loader", "imread_rgb")
_UNCHANGED = {
    *("builtins.int", "builtins.str", "builtins.float", "builtins.bool", "builtins.bytes", "io.BytesIO"),
    *("numpy.asarray", "numpy.array", "numpy.ascontiguousarray", "torch.from_numpy", "torch.tensor", "torch.as_tensor"),
    *(
        "numpy.frombuffer",
        "torch.LongTensor",
        "numpy.int64",
        "builtins.open",
        "os.fspath",
        "copy.copy",
        "copy.deepcopy",
    ),
    *(
        "numpy.float32",
        "torchvision.tv_tensors.Image",
        "torchvision.tv_tensors.Mask",
        "builtins.list",
        "builtins.tuple",
    ),
    *("numpy.squeeze", "torch.squeeze", "torchvision.io.read_file", "builtins.dict", "json.loads", "orjson.loads"),
}
"""Functions that give what they are given, in another form."""
_SAME_METHODS = {
    *("copy", "clone", "contiguous", "numpy", "unsqueeze", "squeeze", "read", "read_bytes", "load", "item", "strip"),
    *(
        "as_py",
        "tolist",
        "detach",
        "cpu",
        "decode",
        "tobytes",
        "getvalue",
        "resolve",
        "expanduser",
        "absolute",
        "as_posix",
    ),
}
_CASTS = {"float": "float32", "half": "float16", "long": "int64", "int": "int32", "double": "float64"}
_TO_CHW = ("permute", "transpose")
_STACKING = (
    "stack",
    "dstack",
    "concatenate",
    "cat",
    "tensor",
    "as_tensor",
    "LongTensor",
    "default_collate",
    "pad_sequence",
    "array",
)
"""Functions that make one value of those of all samples; of a list of one it is that one."""
_IMAGE_LIBRARIES = ("PIL.", "cv2.", "skimage.", "scipy.", "imageio.")
_PICTURE_METHODS = ("convert", "resize", "crop", "thumbnail")
_MOST_TURNS = 64
"""Of a loop over numbers."""
_SEPARATORS = (",", ";", " ", "\t", "|")
"""Of the columns of a line."""
_SAME_STEM = ("replace", "removesuffix", "with_suffix", "split", "rsplit", "partition", "rpartition")
"""Methods of a name that leave its stem, by which files of several folders belong together."""


def called(
    reader: ExpressionReader,
    node: ast.Call,
    on: Any,
    method: str,
    function: Any,
    given: list[Any],
    keywords: dict[str, Any],
) -> Any:
    """Return what a call makes. `on` is what a method belongs to, `function` what is called."""
    if isinstance(function, StandIn | FunctionStandIn) and (found := _object(reader, node, function, given, keywords)):
        return found[0]
    if isinstance(on, Cell) and method in _PICTURE_METHODS:
        on = Picture(on)  # of a dataset that decodes by itself
    if isinstance(on, Validity | Quantile) and not (method or "").startswith("any"):
        return on
    if isinstance(on, Picture):
        return _picture_method(reader, node, on, method, given, keywords)
    if isinstance(function, ModuleName) and (found := _named(reader, node, function.name, given, keywords)):
        return found[0]
    if method in ("extractfile", "getmember", "open", "read", "getinfo") and given:
        member = given[0]
        if isinstance(member, Cell | FilePath) and not isinstance(on, Cell | FilePath):
            parts = (member,) if isinstance(member, Cell) else member.parts
            return FilePath(parts, archive=on if on is not None else True)
    if isinstance(on, StandIn) and (found := _tokenized(reader, node, on, method, given, keywords)):
        return found[0]
    if method == "glob" and isinstance(on, str | PurePosixPath) and given:
        found_path = joined_path([on, given[0]], "/")
        return [found_path] if found_path is not None else reader.computed(node, on, *given)
    if method == "split" and isinstance(on, Cell) and not on.keys and (not given or given[0] in _SEPARATORS):
        return replace(on, examples=tuple(str(one).split(*given) for one in on.examples))
    if method in _SAME_STEM and isinstance(on, Cell | FilePath):
        return [on] if "split" in method or "partition" in method else on
    same = Cell | FilePath | Validity | TokenizedText | ArrayFile | Quantile | DrawnNumber
    if method in _SAME_METHODS and isinstance(on, same):
        return on
    if method in ("to", "type", "long", "float", "bool", "int") and isinstance(on, Cell | Validity | TokenizedText):
        return on
    if isinstance(on, StandIn | dict) and method == "get" and given:
        return reader.part(on, given[0], node)
    if isinstance(on, TableStandIn) and method == "column" and given and isinstance(given[0], str):
        return TableColumn(reader.text(node.func.value) if isinstance(node.func, ast.Attribute) else "", given[0])
    if method in ("iloc", "loc") or (isinstance(on, ModuleName) and on.name == "index"):
        return on
    return reader.computed(node, on, *given, *keywords.values())


def _object(
    reader: ExpressionReader, node: ast.Call, function: Any, given: list[Any], keywords: dict[str, Any]
) -> tuple[Any] | None:
    """Return what an object of a library's makes that is called: a transform or a tokenizer."""
    library = (type(function).__module__ if isinstance(function, StandIn) else function.name).split(".")[0]
    if library in _TOKENIZER_LIBRARIES and isinstance(function, StandIn):
        return _tokenized(reader, node, function, "", given, keywords)
    is_transform = library in TRANSFORM_LIBRARIES or (isinstance(function, StandIn) and len(given) == 1)
    if not is_transform:
        return None
    if isinstance(function, FunctionStandIn) and function.name.rpartition(".")[2] in _LOADERS and given:
        return (_opened(given[0]),)
    if isinstance(function, StandIn) and len(given) == 2 and (mixing := _mixing(function)) is not None:
        reader.mixing = mixing
        return (tuple(given),)
    named = {name: value for name, value in keywords.items() if isinstance(value, Picture)}
    if named and not given:  # albumentations
        after = dict(keywords)
        for name, picture in named.items():
            of = "mask" if name.startswith("mask") else None
            after[name] = picture.then(reader.step(node, "transform", function, of), layout=None)
        return (after,)
    step = reader.step(node, "transform", function)
    if not any(isinstance(one, Picture) for one in given):  # of a dataset that decodes by itself
        given = [Picture(one) if isinstance(one, Cell) else one for one in given]
    found = [one.then(step, layout="CHW") if isinstance(one, Picture) else one for one in given]
    if any(isinstance(one, Picture) for one in given):
        return (found[0] if len(found) == 1 else found,)
    return None


def _mixing(transform: StandIn) -> StandIn | None:
    """Return MixUp or CutMix, also as the only choice of a RandomChoice; None of any other transform."""
    choices = vars(transform).get("transforms")
    if type(transform).__name__ == "RandomChoice" and isinstance(choices, list) and len(choices) == 1:
        transform = choices[0]
    name = type(transform).__name__.lower().removeprefix("random")
    return transform if isinstance(transform, StandIn) and name in ("mixup", "cutmix") else None


def _opened(value: Any) -> Any:
    return Picture(value) if isinstance(value, Cell | FilePath) else value


def _named(
    reader: ExpressionReader, node: ast.Call, name: str, given: list[Any], keywords: dict[str, Any]
) -> tuple[Any] | None:
    """Return what a function of a library's makes; None where it is not known."""
    first = given[0] if given else None
    if (found := cropping_call(reader, node, name, given, keywords)) is not None:
        return (found,)
    if name.rpartition(".")[2] in _STACKING and isinstance(first, list) and len(first) == 1 and not is_known(first):
        return (list(first[0]) if isinstance(first[0], tuple) else first[0],)
    if name == "builtins.zip" and len(given) == 1 and isinstance(first, list | tuple):
        return ([[one] for one in first],)
    if name == "builtins.range" and given and all(isinstance(one, int) for one in given):
        return (list(range(*given))[:_MOST_TURNS],)
    if name == "builtins.str" and isinstance(first, int):
        return (str(first),)
    if name == "builtins.super":
        return (ModuleName("super"),)
    last = name.rpartition(".")[2]
    if last == "__getitem__" and reader.inherited is not None:
        return (reader.inherited,)
    if name == "PIL.Image.fromarray" and isinstance(first, Cell | Picture):
        return (Picture(first) if isinstance(first, Cell) else first,)
    if name in _READERS or last in _LOADERS:
        picture = _opened(first)
        is_tensor = isinstance(picture, Picture) and name.startswith("torchvision.io")
        return (picture.then(layout="CHW"),) if is_tensor else (picture,)
    if name in ("cv2.imread", "cv2.imdecode") and isinstance(first, Cell | FilePath):
        flag = reader.text(node.args[1]) if len(node.args) > 1 else "IMREAD_COLOR"
        kind = "grey" if "GRAYSCALE" in flag else "convert" if "UNCHANGED" in flag or "ANYDEPTH" in flag else "bgr"
        return (Picture(first, (reader.step(node, "rgb" if "COLOR_RGB" in flag else kind, flag),)),)
    if name == "cv2.cvtColor" and isinstance(first, Picture):
        code = reader.text(node.args[1])
        kind = "rgb" if "BGR2RGB" in code else "grey" if code.endswith("2GRAY") else "own"
        return (first.then(reader.step(node, kind)),)
    if name == "cv2.resize" and isinstance(first, Picture):
        size = given[1] if len(given) > 1 else keywords.get("dsize")
        method = next((reader.text(one.value) for one in node.keywords if one.arg == "interpolation"), "INTER_LINEAR")
        return (_resized(reader, node, first, size, method),)
    if name in ("numpy.load",) and isinstance(first, Cell | FilePath):
        return (ArrayFile(first),)
    if last in ("join", "joinpath") and name.startswith(("os.path", "posixpath")):
        return (joined_path(given, "/") or reader.computed(node, *given),)
    if name in ("pathlib.Path", "pathlib.PurePath"):
        return (first,)
    if last == "splitext" and isinstance(first, Cell | FilePath):
        return ([first, ""],)
    if last in ("basename", "stem") and isinstance(first, Cell | FilePath):
        return (first,)
    if name in ("random.choice", "numpy.random.choice") and isinstance(first, Cell):
        return (first.part("random"),)
    if last in ("quantile", "percentile", "nanquantile", "nanpercentile"):
        return (_quantiles(reader, node, given, keywords, 100.0 if "percentile" in last else 1.0),)
    if name in ("builtins.int", "builtins.float") and isinstance(first, Cell):
        return (first.as_number(),)
    if name in _UNCHANGED and len(given) >= 1:
        return (_cast(reader, node, first, keywords),)
    if last in _TO_CHW and isinstance(first, Picture):
        return (first.then(layout="CHW"),)
    if (name in ("numpy.flip", "numpy.fliplr") or last in ("hflip", "horizontal_flip")) and isinstance(first, Picture):
        return (first.then(reader.step(node, "flip", "horizontal", 1.0)),)
    if name in ("numpy.clip", "torch.clamp", "torch.where", "torch.nan_to_num", "numpy.nan_to_num"):
        return (next((one for one in given if isinstance(one, Picture)), reader.computed(node, *given)),)
    if name.startswith("torch.nn.functional") and isinstance(first, Validity):
        return (first,)
    if last == "resized_crop" and isinstance(first, Picture) and len(given) > 5 and isinstance(given[1], DrawnWindow):
        drawn = {"size": given[5], "scale": list(given[1].scale), "ratio": list(given[1].ratio)}
        window = _made_here("torchvision.transforms.RandomResizedCrop", [], drawn | {"interpolation": "bilinear"})
        return (first.then(reader.step(node, "transform", window)),)
    if name.startswith(("torchvision.transforms", "torch.nn.functional")) and isinstance(first, Picture):
        return (first.then(reader.step(node, "transform", (last, tuple(given[1:]), tuple(keywords.items())))),)
    if last == "exif_transpose" and isinstance(first, Picture):
        return (first.then(reader.step(node, "exif")),)
    if name.startswith(_IMAGE_LIBRARIES) and isinstance(first, Picture):
        return (first.then(reader.step(node, "own")),)
    if name.startswith(TRANSFORM_LIBRARIES) and last[:1].isupper():
        return (_made_here(name, given, keywords),) if is_known(given) and is_known(keywords) else None
    return None


def _made_here(name: str, given: list[Any], keywords: dict[str, Any]) -> Any:
    """Return a transform that is made in each call; its attributes are its keywords, as most have them."""
    module, _, kind = name.rpartition(".")
    made = type(kind, (StandIn,), {"__module__": module, "described": {}})()
    vars(made).update(keywords)
    if given:
        vars(made)["transforms" if kind == "Compose" else "size"] = given[0]
    return made


def _quantiles(
    reader: ExpressionReader, node: ast.Call, given: list[Any], keywords: dict[str, Any], most: float
) -> Quantile | Computed:
    of = given[0] if given else None
    levels = given[1] if len(given) > 1 else keywords.get("q")
    if isinstance(of, Picture) and levels is not None and is_known(levels):
        listed = levels.tolist() if hasattr(levels, "tolist") else levels
        flat = listed if isinstance(listed, list | tuple) else [listed]
        if all(isinstance(level, int | float) for level in flat):
            return Quantile(tuple(level / most for level in flat))
    return reader.computed(node, *given)


def _cast(reader: ExpressionReader, node: ast.Call, value: Any, keywords: dict[str, Any]) -> Any:
    if not isinstance(value, Picture) or "dtype" not in keywords:
        return value
    return _as_dtype(reader, node, value, next(one.value for one in node.keywords if one.arg == "dtype"))


def _as_dtype(reader: ExpressionReader, node: ast.Call, picture: Picture, dtype: ast.expr) -> Picture:
    return picture.then(reader.step(node, "cast", reader.text(dtype).strip("'\"").rpartition(".")[2]))


def _picture_method(
    reader: ExpressionReader, node: ast.Call, on: Picture, method: str, given: list[Any], keywords: dict[str, Any]
) -> Any:
    """Return what a method of a Pillow image, an array or a tensor makes of a picture."""
    if method in _SAME_METHODS or method in ("pin_memory", "verify"):
        return on
    if method == "convert":
        mode = given[0] if given else keywords.get("mode", "")
        return on.then(reader.step(node, "grey" if mode == "L" else "convert", mode))
    if method in _CASTS:
        return on.then(reader.step(node, "cast", _CASTS[method]))
    if method in ("astype", "to", "type") and node.args:
        return _as_dtype(reader, node, on, node.args[0])
    if method == "resize":
        size = given[0] if given else keywords.get("size")
        resample = given[1] if len(given) > 1 else keywords.get("resample")
        name = resample.name.lower() if isinstance(resample, EnumStandIn) else ""
        chosen = next(
            (one.value for one in node.keywords if one.arg == "resample"), node.args[1] if len(given) > 1 else None
        )
        name = name or ("bicubic" if chosen is None else reader.text(chosen).rpartition(".")[2].lower())
        return _resized(reader, node, on, size if "box" not in keywords else None, name)
    if method == "transpose" and node.args and "FLIP" in (text := reader.text(node.args[0])):
        return on.then(reader.step(node, "flip", "horizontal" if "LEFT" in text else "vertical", 1.0))
    if method == "flip" and given and given[0] in (-1, 2, [-1], [2]):
        return on.then(reader.step(node, "flip", "horizontal", 1.0))
    if method in _TO_CHW:
        return on.then(layout="CHW" if on.layout == "HWC" else "HWC")
    symbols = {"div": "/", "mul": "*", "sub": "-", "add": "+", "div_": "/", "mul_": "*", "sub_": "-", "add_": "+"}
    if method in symbols and given:
        return on.then(reader.step(node, "arithmetic", symbols[method], given[0]))
    if method in ("clip", "clamp", "clamp_", "clip_"):
        return on
    if method == "crop" and (found := cropped_box(given[0] if given else keywords.get("box"))) is not None:
        return on.then(reader.step(node, "crop", found))
    return on.then(reader.step(node, "own"))


def _resized(reader: ExpressionReader, node: ast.Call, on: Picture, size: Any, name: str) -> Picture:
    """Return a picture after a resize to (width, height): both known, or drawn."""
    if size is not None and is_known(size):
        return on.then(reader.step(node, "resize", size, name))
    scale = scaled_size(size)
    return on.then(reader.step(node, "own") if scale is None else reader.step(node, "scale", scale[1], scale[0]))


def _tokenized(
    reader: ExpressionReader,
    node: ast.Call,
    tokenizer: StandIn,
    method: str,
    given: list[Any],
    keywords: dict[str, Any],
) -> tuple[Any] | None:
    library = type(tokenizer).__module__.split(".")[0]
    if library not in _TOKENIZER_LIBRARIES and "okenizer" not in type(tokenizer).__qualname__:
        return None
    if method not in ("", "encode", "encode_plus", "encode_batch", "batch_encode_plus") or not given:
        return None
    text = given[0][0] if isinstance(given[0], list) and given[0] else given[0]
    known = tuple((name, value) for name, value in keywords.items() if is_known(value))
    part = "ids" if method == "encode" and library == "transformers" else ""
    return (TokenizedText(text, tokenizer, known, reader.place_in(reader.source, node), part),)
