"""Names in a pack: keys of samples, and names of members, which every reader of WebDataset's layout splits alike.

A name is split at the first dot after its last slash, and readers lower-case what follows it. So keys have no dot, and
places of columns have no capital letter. Other characters that are odd in either become `%` and their UTF-8 in hex.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

import numpy as np

from headrace.data.archives.archive_members import NameTable
from headrace.data.sources.file_kind import IMAGE_EXTENSIONS, is_image_name
from headrace.data.storage.strings import StringColumn

AGAIN = "~"
"""Mark of a key that several samples would have: `x`, `x~2`, `x~3`."""
_ODD_IN_KEY = re.compile(r"^__|[\x00-\x1f\x7f%.~\udc80-\udcff]", re.ASCII)
_ODD_IN_PLACE = re.compile(r"^__|__$|^\.|\.$|\.(?=\.)|[^a-z0-9_.-]")


def key_of(name: str) -> str:
    """Return a readable key for a sample's name: its folders, and its stem if it names an image.

    Several names may have one key; `pack_keys` distinguishes them.
    """
    *folders, base = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")] or ["_"]
    if is_image_name(base.encode("utf-8", "surrogateescape")):
        base = base.rpartition(".")[0] or base
    return _ODD_IN_KEY.sub(_escaped, "/".join([*folders, base]))


def pack_keys(names: Iterable[str]) -> StringColumn:
    """Return a key for each sample's name, all different, none empty or hidden; the same on every machine."""
    keys = StringColumn.from_list(map(key_of, names))
    last = NameTable.build(keys).find_paths(keys, np.arange(len(keys)))
    repeated = np.isin(last, last[last != np.arange(len(keys))])
    if not repeated.any():
        return keys
    seen: Counter[str] = Counter()
    texts = list(keys)
    for at in np.flatnonzero(repeated).tolist():
        seen[texts[at]] += 1
        if seen[texts[at]] > 1:
            texts[at] += f"{AGAIN}{seen[texts[at]]}"
    return StringColumn.from_list(texts)


def member_places(names: Sequence[str], *, extensions: Collection[str]) -> dict[str, str]:
    """Return the place of each column of bytes: `PLACE` in `KEY.PLACE.jpg`, or empty for `KEY.jpg`.

    `extensions`: columns of archives, which are named by the extensions of their members. Places differ, and none ends
    in the extension of an image, so that a member belongs to one column.
    """
    places: dict[str, str] = {}
    taken: set[str] = set()

    def rank(name: str) -> int:
        return 0 if name.rpartition(".")[2].lower() in IMAGE_EXTENSIONS else 1 if name == "image" else 2

    for name in sorted(names, key=rank):
        plain, last = _place(name)
        is_alone = len(names) == 1 and name not in extensions
        first = last if last is not None else "" if name == "image" or is_alone else plain
        candidates = (first, plain, *(f"{plain}-{number}" for number in range(2, len(names) + 2)))
        place = next(each for each in candidates if not {each, each or bare_place(name)} & taken)
        taken |= {place, place or bare_place(name)}
        places[name] = place
    return places


def bare_place(name: str) -> str:
    """Return what follows the key of a member that is no image, in a column whose place is empty."""
    return _place(name)[0].replace(".", "%2e")


def free_place(wanted: str, taken: Collection[str]) -> str:
    """Return `wanted`, or else `values.WANTED`, `values-2.WANTED`, …: the first that is not taken."""
    others = (f"values{'' if number == 1 else f'-{number}'}.{wanted}" for number in count(1))
    return wanted if wanted not in taken else next(each for each in others if each not in taken)


def place_of(extension: str, places: Mapping[str, object]) -> str:
    """Return which of the places a member with this extension has."""
    return extension if extension in places else extension.rpartition(".")[0]


def _place(name: str) -> tuple[str, str | None]:
    """Return a place that no other name has, and the place without the extension of an image, if the name has one."""
    escaped = _ODD_IN_PLACE.sub(_escaped, name) or "%"
    stem, _, last = escaped.rpartition(".")
    return _without_image(escaped), _without_image(stem) if last in IMAGE_EXTENSIONS else None


def _without_image(place: str) -> str:
    """Escape the last part of a place if it would be the extension of an image."""
    stem, dot, last = place.rpartition(".")
    return f"{stem}{dot}%{ord(last[0]):02x}{last[1:]}" if last in IMAGE_EXTENSIONS else place


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in match[0].encode("utf-8", "surrogatepass"))
