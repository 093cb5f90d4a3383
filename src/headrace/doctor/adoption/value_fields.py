"""Loader fields for leaves that are numbers or texts, and their code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.doctor.adoption.leaf_fields import UnexplainedError, values_of
from headrace.doctor.adoption.recipe_draft import RecipeDraft
from headrace.doctor.explain import TokensExplanation, ValueExplanation
from headrace.doctor.explain.look import LeafPath, LeafValue

_CASTS = {
    "float32": ".float()",
    "float64": ".double()",
    "float16": ".half()",
    "int64": ".long()",
    "int32": ".int()",
    "uint8": ".byte()",
    "bool": ".bool()",
}
_LISTED = "torch.stack([torch.as_tensor(each) for each in batch[{name!r}]])"


class ValueFields:
    """Builder of value fields, which are added to a draft."""

    def __init__(self, draft: RecipeDraft) -> None:
        self._draft = draft
        self._texts: dict[str, TokensExplanation] = {}
        self.tokenizers: dict[str, str] = {}
        """Tokenizers as JSON, by the constants that name their files."""
        self.one_hot = ""
        """Name of the field of mixed labels."""

    def code(self, path: LeafPath, by: ValueExplanation | TokensExplanation) -> str:
        """Add the field of a leaf, and return the leaf as code.

        Raises:
            UnexplainedError: No field makes it.
        """
        return self._tokens(path, by) if isinstance(by, TokensExplanation) else self._value(path, by)

    def _value(self, path: LeafPath, by: ValueExplanation) -> str:
        leaf = self._draft.look.samples[0].leaves[path]
        cast = _CASTS.get(leaf.dtype, "")
        if self._draft.look.opened is not None:
            by = self._of_files(by)
        if by.kind == "constant":
            return self._constant(by.value, leaf)
        name = self._draft.name(path, "label" if leaf.dtype == "int64" or by.kind == "one-hot" else "value")
        if by.kind == "one-hot":
            return self._one_hot(path, name, by, leaf)
        column = values_of(by, self._draft.look.columns)
        self._draft.fields[name] = "hr.Raw()"
        if self._draft.look.opened is not None:
            self._draft.sources[name] = by.column
            self._draft.fields[name] = self._field_of_files(str(by.column), column)
        else:
            # a manifest has no lists of booleans
            is_list = leaf.kind == "array"
            self._draft.columns[name] = [list(map(_number, each)) for each in column] if is_list else column
        if leaf.kind == "array":
            self._draft.imports.add("import torch")
            return _LISTED.format(name=name) + cast
        if not leaf.dtype:
            is_number = not isinstance(column[0], str)
            return f"batch[{name!r}].tolist()" if is_number else f"batch[{name!r}]"
        is_same = {int: "int64", float: "float64", bool: "bool"}.get(type(column[0])) == leaf.dtype
        return f"batch[{name!r}]" + ("" if is_same else cast)

    def _of_files(self, by: ValueExplanation) -> ValueExplanation:
        """Return an explanation by an unmodified column, including for a leaf that is constant in few samples."""
        if by.kind == "constant":
            columns = self._draft.look.columns.items()
            seen = [each.index for each in self._draft.look.samples]
            same = (name for name, column in columns if all(column[index] == by.value for index in seen))
            name = next(same, None)
            return by if name is None else ValueExplanation("equal", name)
        if by.kind != "equal":
            raise UnexplainedError(f"no column of its files holds it as it is: it is {by.kind}")
        return by

    def _field_of_files(self, name: str, column: Sequence[Any]) -> str:
        is_member = self._draft.look.is_stream and not self._draft.is_key(name)
        if is_member and any(isinstance(each, int) for each in column):
            return f"hr.Label(source={name!r})"
        return f"hr.Raw(source={name!r}{', text=True' if is_member else ''})"

    def _tokens(self, path: LeafPath, by: TokensExplanation) -> str:
        """Return the tokens of a text or their mask, both from one field."""
        constant = f"TOKENIZER_{by.tokenizer}"
        name = next(
            (name for name, one in self._texts.items() if replace(one, part=by.part, pad_id=by.pad_id) == by), None
        )
        if name is None:
            name = self._draft.name(path, "text")
            self._texts[name] = by
            self._draft.sources[name] = by.column
            if self._draft.look.opened is None:
                self._draft.columns[name] = self._draft.look.columns[by.column]
            self.tokenizers[constant] = self._draft.look.tokenizers[by.tokenizer]
        self._texts[name] = by if by.part == "ids" else self._texts[name]
        pad = self._texts[name].pad_id
        arguments = [constant, f"max_length={by.length}", 'pad="max"', *([] if pad is None else [f"pad_id={pad}"])]
        arguments += [] if self._draft.look.opened is None else [f"source={by.column!r}"]
        self._draft.fields[name] = f"hr.Text({', '.join(arguments)})"
        dtype = self._draft.look.samples[0].leaves[path].dtype
        is_own = dtype == {"ids": "int64", "mask": "bool"}[by.part]
        return f"batch[{name!r}][{by.part!r}]" + ("" if is_own else _CASTS.get(dtype, ""))

    def _one_hot(self, path: LeafPath, name: str, by: ValueExplanation, leaf: LeafValue) -> str:
        self._draft.columns[name] = values_of(replace(by, kind="class"), self._draft.look.columns)
        self._draft.fields[name] = "hr.Label()"
        if path in (self._draft.look.mixed or ()):  # the mixing makes them one-hot
            self.one_hot = name
            return f"batch[{name!r}]" + ("" if leaf.dtype == "float32" else _CASTS.get(leaf.dtype, ""))
        self._draft.imports.add("import torch")
        code = f"torch.nn.functional.one_hot(batch[{name!r}], {len(leaf.value)})"
        return code + ("" if leaf.dtype == "int64" else _CASTS.get(leaf.dtype, ""))

    def _constant(self, value: Any, leaf: LeafValue) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            raise UnexplainedError(f"it is {value} in all samples")
        count = "len(next(iter(batch.values())))"
        if not leaf.dtype:
            return f"[{value!r}] * {count}"
        self._draft.imports.add("import torch")
        return f"torch.tensor([{value!r}] * {count}, dtype=torch.{leaf.dtype})"


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value
