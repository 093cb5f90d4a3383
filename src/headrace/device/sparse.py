"""The dense tensors that a sparse or nested one is made of: torch counts and watches over the memory of those only."""

from __future__ import annotations

import torch
from torch import Tensor

_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def dense_parts(tensor: Tensor) -> list[Tensor]:
    """Where the tensor's content lies; a dense one is its own only part."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # indices() and values() want it coalesced
    if tensor.layout in _ROWS:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in _COLUMNS:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_nested and tensor.layout is torch.strided:
        return [tensor.values()]
    return [tensor]


def bytes_of(tensor: Tensor) -> int:
    return sum(part.nbytes for part in dense_parts(tensor))
