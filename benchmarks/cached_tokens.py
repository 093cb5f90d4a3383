"""What does a caption's hit in a cache of ids cost beside encoding it, in CPU time, by the caption's length?

    python benchmarks/cached_tokens.py [--rounds 7] [--batch-size 64] [--folder FOLDER]

Captions of 2 to 400 words by the words and the tokenizer of benchmarks/captioned_photos.py, in batches.
Each is encoded in one call, in one thread (TOKENIZERS_PARALLELISM=false), put into a cache, and looked up there: in
RAM, or with --folder in a file of that folder, which is then in the page cache. CPU time of the process; medians over
the rounds, in which the ways come in turn, and the median of the rounds' ratios. Then an epoch of a loader of such
texts alone (5 to 40 words), with and without a cache that holds all: what is left of the ratio once texts are drawn,
looked at and filled up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
from captioned_photos import Captions, train_tokenizer
from tokenizers import Tokenizer

import headrace as hr
from headrace.cache import Store, identity_of, parse_spec
from headrace.fields import Sequences
from headrace.fields.tokens.tokenizers import Encoder, resolve_tokenizer
from headrace.loader.cache import TokenCache
from headrace.tools.bench.comparison import environment

COUNT = 2048
WORDS = (2, 5, 10, 20, 40, 100, 400)
MAX_LENGTH = 2048
TRAINED_ON = 20_000
VOCABULARY = 8192


def captions(count: int, seed: int) -> list[str]:
    source = Captions(seed)
    return [source.draw() for _ in range(count)]


def trained() -> Tokenizer:
    return train_tokenizer(captions(TRAINED_ON, seed=1), VOCABULARY)


def cost(run: Callable[[], object]) -> float:
    """CPU time of the process, in seconds."""
    began = time.process_time()
    run()
    return time.process_time() - began


def texts_of(words: int) -> list[str]:
    all_words = " ".join(captions(COUNT, seed=3)).split()
    rng = np.random.default_rng(words)
    return [" ".join(rng.choice(all_words, words)) for _ in range(COUNT)]


class Compared:
    """The ways to the ids of one set of texts."""

    def __init__(self, encoder: Encoder, texts: list[str], spec: str, batch_size: int) -> None:
        self._encoder = encoder
        self._batches = [texts[at : at + batch_size] for at in range(0, len(texts), batch_size)]
        order = np.random.default_rng(0).permutation(len(texts))
        self._numbers = [order[at : at + batch_size] for at in range(0, len(texts), batch_size)]
        self._spec, self._count = spec, len(texts)
        self._made = 0

    def encode(self) -> None:
        for batch in self._batches:
            Sequences.of(self._encoder.encode(batch))

    def store(self) -> TokenCache:
        """An empty one."""
        self._made += 1
        identity = identity_of(self._count, [time.time_ns(), self._made])
        return TokenCache(Store(parse_spec(self._spec), identity), 0, MAX_LENGTH)

    def look_up(self, kept: TokenCache) -> None:
        """The first time all is encoded and kept."""
        for batch, numbers in zip(self._batches, self._numbers, strict=True):
            kept.encoded(batch, numbers, self._encoder.encode)


def compare(compared: Compared, rounds: int) -> dict[str, float]:
    """Seconds a text by way, and ratios."""
    found: dict[str, list[float]] = {"encode": [], "miss": [], "hit": []}
    for _ in range(rounds):
        kept = compared.store()
        found["encode"].append(cost(compared.encode))
        found["miss"].append(cost(partial(compared.look_up, kept)))
        found["hit"].append(cost(partial(compared.look_up, kept)))
        assert kept.store.stats().hits == COUNT
        kept.store.close()
    medians = {name: statistics.median(each) / COUNT for name, each in found.items()}
    ratio = statistics.median(a / b for a, b in zip(found["encode"], found["hit"], strict=True))
    return medians | {"ratio": ratio}


def epochs(folder: Path, spec: str, batch_size: int, rounds: int) -> tuple[float, float, float]:
    """Seconds a text of an epoch without and with a cache, and the median of the rounds' ratios."""
    manifest = folder / "texts.jsonl"
    manifest.write_text("".join(json.dumps({"text": text}) + "\n" for text in captions(4 * COUNT, seed=4)))
    trained().save(str(folder / "tokenizer.json"))
    fields = {"text": hr.Text(folder / "tokenizer.json", max_length=77)}
    options = {"batch_size": batch_size, "shuffle": True, "threads": 1, "prefetch": 3, "output": "numpy"}
    ways = {name: hr.Loader(manifest, fields, cache=cache, **options) for name, cache in (("no", None), ("yes", spec))}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, loader in ways.items():
            took = cost(lambda loader=loader: sum(1 for _ in loader))
            if number > 0:  # the first fills the cache
                found[name].append(took / (4 * COUNT))
    ratio = statistics.median(a / b for a, b in zip(found["no"], found["yes"], strict=True))
    return statistics.median(found["no"]), statistics.median(found["yes"]), ratio


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--batch-size", type=int, default=64)
    ask.add_argument("--folder", type=Path)
    args = ask.parse_args()
    here = environment()
    print(f"{here.cpu}, {here.cores} cores, {here.date}; batches of {args.batch_size}, {args.rounds} rounds\n")
    print(f"{'words':>8}{'encode':>12}{'miss':>12}{'hit':>12}   us CPU a text; encode / hit")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        spec = "ram:100MB" if args.folder is None else f"disk:{folder}:100MB"
        encoder = resolve_tokenizer(trained(), max_length=MAX_LENGTH)
        for words in WORDS:
            found = compare(Compared(encoder, texts_of(words), spec, args.batch_size), args.rounds)
            costs = "".join(f"{found[way] * 1e6:>12.2f}" for way in ("encode", "miss", "hit"))
            print(f"{words:>8}{costs}   {found['ratio']:.1f}", flush=True)
        without, with_cache, ratio = epochs(folder, spec, args.batch_size, args.rounds)
    print(f"\nEpoch of texts alone: {without * 1e6:.1f} us CPU a text, cached {with_cache * 1e6:.1f}: {ratio:.1f} x")


if __name__ == "__main__":
    main()
