"""Draft of a recipe: the fields and columns assigned to leaves so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.doctor.adoption.placed_fields import PlacedField
from headrace.doctor.explain.look import LeafPath, Look


@dataclass
class RecipeDraft:
    """Fields, columns and codes of leaves, by name and by path."""

    look: Look
    fields: dict[str, str] = field(default_factory=dict)
    columns: dict[str, Sequence[Any]] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    """Files of each pixel field, and the columns of fields in opened files."""
    codes: dict[LeafPath, str] = field(default_factory=dict)
    placed: list[PlacedField] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)

    def name(self, path: LeafPath, kind: str) -> str:
        """Return a new name for the field of a leaf: the key in its path, or its kind."""
        named = [part for part in path if isinstance(part, str) and part.isidentifier()]
        name = named[-1] if named else kind
        taken = {*self.fields, *(one.name for one in self.placed)}
        return name if name not in taken else f"{name}_{len(taken)}"

    def is_key(self, column: str) -> bool:
        """Return True if a column is a value of a JSON member of a tar."""
        return self.look.is_stream and ".json." in f".{column}"
