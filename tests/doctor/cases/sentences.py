"""Sentences: tokenised one at a time by transformers, padded in a collate of the script's own.

A sample: tokenise 5 ms, getitem 1 ms. A batch of 4: 24 ms and a collate of 6 ms."""

from __future__ import annotations

import torch
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import burn, repeat, sleep
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

WORDS = ["what", "does", "this", "script", "wait", "for"]


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({word: number for number, word in enumerate(["?", *WORDS])}, unk_token="?"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="?")


class Sentences(Dataset[list[int]]):
    def __init__(self, count: int) -> None:
        self.count = count
        self.tokenizer = tokenizer()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> list[int]:
        sentence = " ".join(WORDS[: 2 + index % 4]) * 200
        with stage("getitem"):
            burn(0.001)
            with stage("tokenise"):
                repeat(0.005, lambda: self.tokenizer(sentence))
                return self.tokenizer(sentence)["input_ids"]


def collate(samples: list[list[int]]) -> torch.Tensor:
    with stage("collate"):
        sleep(0.006)
        longest = max(map(len, samples))
        return torch.tensor([sample + [0] * (longest - len(sample)) for sample in samples])


if __name__ == "__main__":
    known = arguments(workers=1)
    batches = loader(Sentences(4 * known.steps), known, batch_size=4, collate_fn=collate)
    train(batches, Pace(forward=0.008 * known.compute, backward=0.008, other=0.002), steps=known.steps)
