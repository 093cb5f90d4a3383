"""`Array`: numbers that are no picture, such as embeddings, as they were saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

from headrace.errors import UsageError

ArrayDType: TypeAlias = Literal[
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"
]

ARRAY_DTYPES: tuple[ArrayDType, ...] = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


@dataclass(frozen=True)
class Array:
    """An array a sample, stacked: [N, *shape].

    `source` is a column of `.npy` members or files, of `.npz` of one array each, of lists of numbers, or of numbers;
    None: the field's own name. `dtype` converts, from one kind of number to the same or a wider kind: floats do not
    become whole numbers, and what float16 cannot hold becomes infinite. None: as it was saved, all of a batch alike.

    A sample without an array, with a damaged one, one of Python objects, which are never unpickled, or of a kind that
    `dtype` does not take, is bad. So is one of another shape than `shape`, where that is given. Without, arrays of
    several shapes in one batch raise UsageError, and a rank that has no sample of a short last batch gets [0].
    """

    _: KW_ONLY
    source: str | None = None
    dtype: ArrayDType | None = None
    shape: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in ARRAY_DTYPES:
            raise UsageError(f"Array: expected dtype to be None or one of {ARRAY_DTYPES}, got {self.dtype!r}")
        if self.shape is None:
            return
        if not isinstance(self.shape, list | tuple) or not all(type(side) is int and side >= 0 for side in self.shape):
            raise UsageError(f"Array: expected shape to be None or whole numbers, such as (512,), got {self.shape!r}")
        object.__setattr__(self, "shape", tuple(self.shape))
