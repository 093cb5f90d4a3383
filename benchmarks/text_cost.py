"""What does text cost beside images, in CPU time, and what does encoding by batch gain?

    python benchmarks/text_cost.py PHOTOS [--rounds 7] [--threads 2] [--batch-size 64] [--max-length 77]

PHOTOS is a folder of JPEGs (benchmarks/make_photos.py makes one); captioned_photos.py gives them captions of 5 to 40
words, and a tokenizer. One epoch each, in turn: images alone (RandomResizedCrop(224), bytes), texts alone, and both.
CPU time is the process's, so it has the tokenizer's own threads in it; medians over the rounds, and the median of the
rounds' ratios. Then the tokenizer alone, in one thread (TOKENIZERS_PARALLELISM=false in a process of its own) and as it
comes: a text a call, as a DataLoader's `__getitem__` encodes, with padding to the maximum; a batch a call; and as the
loader does, which puts the tokens at both ends around the ids itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from captioned_photos import Captions, make
from tokenizers import Tokenizer

import headrace as hr
from headrace.fields.tokens.tokenizers import resolve_tokenizer
from headrace.tools.bench.comparison import environment


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
    source = Captions(seed=3)
    texts = [source.draw() for _ in range(2048)]
    single = Tokenizer.from_file(str(path))
    single.enable_truncation(max_length)
    single.enable_padding(length=max_length, pad_id=0)
    library = Tokenizer.from_file(str(path))
    library.enable_truncation(max_length)
    library.no_padding()
    encoder = resolve_tokenizer(str(path), max_length=max_length)
    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    ways = {
        "a text a call, padded": lambda: [single.encode(text).ids for text in texts],
        "a batch a call": lambda: [[each.ids for each in library.encode_batch_fast(batch)] for batch in batches],
        "as the loader does": lambda: [encoder.encode(batch) for batch in batches],
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
        make(args.photos, Path(folder), times=1)
        tokenizer = Path(folder, "tokenizer.json")
        compare_epochs(args, tokenizer, Path(folder, "captions.jsonl"))
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
