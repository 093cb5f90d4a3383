"""What goes around a text's ids: by every post-processor of the library, as the library itself puts it there."""

from __future__ import annotations

import json

import pytest
from text_data import caption, tokenizer
from tokenizers import Tokenizer, processors

from headrace.fields.tokens.native_tokenizer import SpecialTokens, special_tokens_of
from headrace.fields.tokens.tokenizers import resolve_tokenizer

A, B = ("[a]", 3), ("[b]", 5)
TEXTS = ["", *(caption(number) for number in range(12))]


def template(single):
    return processors.TemplateProcessing(single=single, pair="$A $B", special_tokens=[A, B])


PROCESSORS = {
    "both ends": (template("[a] $A [b]"), SpecialTokens([3], [5])),
    "begin, twice": (template("[a] [b] $A"), SpecialTokens([3, 5], [])),
    "end, another type": (template("$A:0 [b]:1"), SpecialTokens([], [5])),
    "BERT": (processors.BertProcessing(B, A), SpecialTokens([3], [5])),
    "RoBERTa": (processors.RobertaProcessing(B, A), SpecialTokens([3], [5])),
    "bytes": (processors.ByteLevel(trim_offsets=True), SpecialTokens([], [])),
    "Llama": (processors.Sequence([processors.ByteLevel(), template("[a] $A")]), SpecialTokens([3], [])),
    "one after another": (processors.Sequence([template("[a] $A"), template("$A [b]")]), None),
    "the text twice": (template("[a] $A $A"), None),
}


@pytest.fixture(params=list(PROCESSORS))
def case(request):
    """A tokenizer, and what its description says."""
    processor, frame = PROCESSORS[request.param]
    own = Tokenizer.from_str(tokenizer().to_str())
    own.post_processor = processor
    return own, frame


def test_what_the_description_says(case):
    own, frame = case
    assert special_tokens_of(own.to_str()) == frame


def test_a_tokenizer_without_a_processor():
    description = json.loads(tokenizer().to_str()) | {"post_processor": None}
    assert special_tokens_of(json.dumps(description)) == SpecialTokens([], [])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("side", ["left", "right"])
def test_ids_are_those_of_the_library(case, side):
    own, _ = case
    for max_length in (own.num_special_tokens_to_add(False) or 1, 3, 9, 200):
        own.enable_truncation(max_length, direction=side)
        own.no_padding()
        encoder = resolve_tokenizer(own, max_length=max_length)
        assert [list(ids) for ids in encoder.encode(TEXTS)] == [own.encode(text).ids for text in TEXTS]
