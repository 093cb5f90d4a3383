"""`decode_batch`: one batch, made as a Loader makes it, from bytes that the caller holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace._core import Limits
from headrace.augment import Augmentation
from headrace.data import Dataset, StringColumn, TextColumn, borrow_bytes
from headrace.data import open as open_dataset
from headrace.errors import UsageError
from headrace.fields import Field, Label
from headrace.foreign_arguments import known_arguments
from headrace.loader import Loader, Output, first_batch
from headrace.plan import check_int
from headrace.views import View

_MOST_KEY = (1 << 63) - 1


@known_arguments("decode_batch")
def decode_batch(
    items: Any,
    fields: Mapping[str, Field] | None = None,
    *,
    view: View | Sequence[View] | None = None,
    view_from: str | None = None,
    augment: Augmentation | str | Sequence[Augmentation | str] | None = None,
    keys: Any = None,
    seed: int = 0,
    epoch: int = 0,
    classes: Sequence[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    output: Output = "torch",
    threads: int = 1,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """Return one batch of a Loader from items in memory, for functions that another engine calls with a batch.

        rows.map_batches(lambda batch: hr.decode_batch(batch, view=view, keys=batch["id"], output="numpy"))

    `items` is a list or an object array of the files' bytes (any buffers), a binary Arrow array, a list of dicts, a
    mapping of columns, or a table of pyarrow, pandas or polars. Bytes are read in place, without a copy, and must not
    change during the call; other columns are converted. The batch is a dict in new memory, the same as a Loader's.

    `fields`, `view`, `view_from`, `augment`, `output`, `limits`  as in Loader
    `keys`      an int from 0, or a text, for each item: its random draws depend on nothing else but `seed` and `epoch`,
                so results do not depend on how an engine cuts batches. Key k draws as sample k in this epoch of
                `Loader(seed=seed)`. Default: positions in the batch, so each batch repeats the draws of the others
    `classes`   names of all classes, to number a column `label` of texts: a batch need not have all of them
    `on_error`  "raise", or "skip" to leave out items that cannot be decoded. A Key field has the keys of the others
    `threads`   native threads of this call. Engines call from many processes, so the default is 1

    Safe to call from several threads at once and in forked processes: a call shares no threads with other calls.

    Raises DecodeError, LimitError, UnsupportedError or ViewError, whose `key` is the item's key, else its position.
    Raises EmptyDatasetError for no items, and UsageError for invalid arguments.
    """
    if on_error not in ("raise", "skip"):
        raise UsageError(f"on_error: expected 'raise' or 'skip', got {on_error!r}")
    check_int("epoch", epoch, 0, (1 << 64) - 1, "epochs count from 0")
    table = open_dataset(borrow_bytes(items), classes=classes)
    if table.base_ids is not None:
        raise UsageError("classes: expected the names of all classes, got items of others")
    count = len(table)
    listed = list(range(count)) if keys is None else _checked_keys(keys, count)
    names = StringColumn.from_list([str(key).encode("utf-8", "surrogatepass") for key in listed])
    data = _KeyedDataset(replace(table.table, keys=names), ids=np.array([*map(_draw_id, listed)], np.int64))
    if classes is None:
        _expect_numbers(data, fields)
    loader = Loader(
        data,
        fields,
        view=view,
        view_from=view_from,
        augment=augment,
        batch_size=count,
        seed=seed,
        threads=threads,
        prefetch=1,
        on_error="replace" if on_error == "skip" else "raise",
        max_bad=1.0,
        rank=0,
        world_size=1,
        output=output,
        limits=limits,
    )
    return first_batch(loader, epoch, leaves_out=on_error == "skip")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _KeyedDataset(Dataset):
    """Samples with given keys of their random draws."""

    ids: npt.NDArray[np.int64]

    def draw_ids(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.ids[index]


def _checked_keys(keys: Any, count: int) -> list[int | str]:
    converts = (getattr(keys, name, None) for name in ("to_pylist", "tolist", "to_list"))  # Arrow, NumPy, polars
    convert = next(filter(None, converts), None)
    is_sequence = isinstance(keys, Sequence) and not isinstance(keys, str)
    listed = convert() if convert is not None else [*keys] if is_sequence else None
    if not isinstance(listed, list) or len(listed) != count:
        got = f"{len(listed):,}" if isinstance(listed, list) else repr(keys)
        raise UsageError(f"keys: expected one for each of {count:,} items, got {got}")
    plain = [key.item() if isinstance(key, np.generic) else key for key in listed]
    for item, key in enumerate(plain):
        if not isinstance(key, str) and not (type(key) is int and 0 <= key <= _MOST_KEY):
            raise UsageError(f"keys: expected ints from 0 to 2**63 - 1 or texts, got {key!r} for item {item:,}")
    return plain


def _draw_id(key: int | str) -> int:
    """Return a whole number as it is, and the hash of a text (63 bits, the same on every machine)."""
    if isinstance(key, int):
        return key
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _expect_numbers(data: Dataset, fields: Mapping[str, Field] | None) -> None:
    """Raise UsageError for labels that are texts: each batch would number its own classes."""
    for name, field in ({"label": Label()} if fields is None else fields).items():
        column = data.columns.get(getattr(field, "source", None) or name)
        if isinstance(field, Label) and isinstance(column, TextColumn):
            raise UsageError(
                f"field {name!r}: expected numbers, got texts, which each batch would number by itself; name all "
                "classes of a column 'label' with classes=, or give numbers"
            )
