"""What does text cost beside images, in CPU time, and what does encoding by batch gain?

    python benchmarks/text_cost.py PHOTOS [--rounds 7] [--threads 2] [--batch-size 64] [--max-length 77]

PHOTOS is a folder of JPEGs (benchmarks/make_photos.py makes one). Each photograph gets a caption of 5 to 40 words out
of a made vocabulary, whose words are as unequally frequent as those of a language; a byte-level BPE tokenizer is
trained on other captions of the same kind. One epoch each, in turn: images alone (RandomResizedCrop(224), bytes), texts
alone, and both. CPU time is the process's, so it has the tokenizer's own threads in it; medians over the rounds, and
the median of the rounds' ratios. Then the tokenizer alone, in one thread (TOKENIZERS_PARALLELISM=false in a process of
its own) and as it comes: a text a call, as a DataLoader's `__getitem__` encodes, with padding to the maximum, and a
batch a call, as the loader does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

import headrace as hr
from headrace.bench.environment import environment
from headrace.fields.text import most_bytes
from headrace.tokens import resolve_tokenizer

WORDS = 20_000
VOCABULARY = 8_192
TRAINED_ON = 20_000
SPECIAL = ["<pad>", "<s>", "</s>"]
SYLLABLES = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "is")]


def captions(count: int, seed: int) -> list[str]:
    """Words of one to four syllables, the k-th most frequent with a share of 1 / k (Zipf)."""
    words = np.random.default_rng(0)
    vocabulary = ["".join(words.choice(SYLLABLES, words.integers(1, 5))) for _ in range(WORDS)]
    share = 1 / np.arange(1, WORDS + 1)
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, 41, count)
    drawn = rng.choice(WORDS, lengths.sum(), p=share / share.sum()).tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(vocabulary[word] for word in drawn[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


def trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(captions(TRAINED_ON, seed=1), trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in SPECIAL[1:]]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    tokenizer.enable_padding(pad_id=0, pad_token=SPECIAL[0])
    return tokenizer


def write_manifest(photos: Path, folder: Path) -> Path:
    paths = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jp*g"))
    lines = [
        json.dumps({"image": path, "text": text}) for path, text in zip(paths, captions(len(paths), 2), strict=True)
    ]
    (folder / "captions.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "captions.jsonl"


def loaders(args: argparse.Namespace, tokenizer: Path, manifest: Path) -> dict[str, hr.Loader]:
    dataset = hr.open(manifest, root=args.photos)
    image, text = hr.Image(), hr.Text(tokenizer, max_length=args.max_length)
    view = hr.RandomResizedCrop(224, flip=0.5)
    options = {"batch_size": args.batch_size, "shuffle": True, "threads": args.threads, "output": "numpy"}
    return {
        "images": hr.Loader(dataset, {"image": image}, view=view, **options),
        "texts": hr.Loader(dataset, {"text": text}, **options),
        "both": hr.Loader(dataset, {"image": image, "text": text}, view=view, **options),
    }


def cost(run: Callable[[], object]) -> tuple[float, float]:
    """CPU time of the process, and wall time, in seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def epoch(loader: hr.Loader) -> None:
    for _ in loader:
        pass


def encode_alone(path: Path, max_length: int, batch_size: int) -> None:
    """Prints what one process needs a text: a text a call, and a batch a call."""
    texts = captions(2048, seed=3)
    single = Tokenizer.from_file(str(path))
    single.enable_truncation(max_length)
    single.enable_padding(length=max_length, pad_id=0)
    encoder = resolve_tokenizer(str(path), max_length=max_length)
    assert max(map(len, texts)) <= most_bytes(max_length)
    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    ways = {
        "a text a call, padded": lambda: [single.encode(text).ids for text in texts],
        "a batch a call": lambda: [encoder.encode(batch) for batch in batches],
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(7):
        for name, run in ways.items():
            found[name].append(cost(run))
    tokens = sum(len(ids) for batch in batches for ids in encoder.encode(batch))
    for name, costs in found.items():
        cpu, wall = (statistics.median(each) for each in zip(*costs, strict=True))
        print(f"  {name:<24}{cpu / len(texts) * 1e6:>8.1f} us CPU a text  {tokens / wall:>12,.0f} tokens/s")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--batch-size", type=int, default=64)
    ask.add_argument("--max-length", type=int, default=77)
    ask.add_argument("--encode", type=Path, help=argparse.SUPPRESS)
    args = ask.parse_args()
    if args.encode is not None:
        encode_alone(args.encode, args.max_length, args.batch_size)
        return
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder, "tokenizer.json")
        trained().save(str(tokenizer))
        compare_epochs(args, tokenizer, write_manifest(args.photos, Path(folder)))
        for parallel in ("false", None):
            settings = {} if parallel is None else {"TOKENIZERS_PARALLELISM": parallel}
            print("\nThe tokenizer alone, " + ("as it comes" if parallel is None else "in one thread"), flush=True)
            command = [sys.executable, __file__, str(args.photos), "--encode", str(tokenizer)]
            sizes = ["--batch-size", str(args.batch_size), "--max-length", str(args.max_length)]
            subprocess.run([*command, *sizes], check=True, env=os.environ | settings)


def compare_epochs(args: argparse.Namespace, tokenizer: Path, manifest: Path) -> None:
    made = loaders(args, tokenizer, manifest)
    samples = made["both"].samples
    for loader in made.values():
        epoch(loader)  # files come into the page cache, and memory into the pool
    rounds = [{name: cost(partial(epoch, loader)) for name, loader in made.items()} for _ in range(args.rounds)]
    here = environment()
    print(f"{here.cpu}, {here.cores} cores, {here.date}")
    print(f"{samples:,} photographs, batches of {args.batch_size}, {args.threads} threads, {args.rounds} rounds\n")
    print(f"{'':<24}{'us CPU a sample':>16}{'samples/s':>12}")
    for name in made:
        cpu, wall = (statistics.median(found[name][i] for found in rounds) for i in range(2))
        print(f"{name:<24}{cpu / samples * 1e6:>16.1f}{samples / wall:>12,.0f}")
    beside = statistics.median((each["both"][0] - each["images"][0]) / each["images"][0] for each in rounds)
    alone = statistics.median(each["texts"][0] / each["images"][0] for each in rounds)
    print(f"\nText beside images adds {beside:.1%} to their CPU time; an epoch of texts alone takes {alone:.1%} of it.")


if __name__ == "__main__":
    main()
