"""tokenizers, and the tokenizers and processors of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...probe import Probe

ENCODES = ("encode", "encode_batch", "encode_batch_fast")


def install(probe: Probe, tokenizers: Any) -> None:
    for name in ENCODES:
        probe.time_calls(tokenizers.Tokenizer, name, "tokenise", f"tokenizers {name}")


def install_transformers(probe: Probe, base: Any) -> None:
    for name in ("__call__", "encode", "pad", "apply_chat_template"):
        probe.time_calls_by_type(base.PreTrainedTokenizerBase, name, "tokenise")


def install_image_processing(probe: Probe, processing: Any) -> None:
    probe.time_calls_by_type(processing.BaseImageProcessor, "__call__", "transform")
