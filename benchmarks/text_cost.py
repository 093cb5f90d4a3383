"""What does text cost beside images, in CPU time, and what does encoding by batch gain?

    python benchmarks/text_cost.py PHOTOS [--rounds 7] [--threads 2] [--batch-size 64] [--max-length 77]

PHOTOS is a folder of JPEGs (benchmarks/make_photos.py makes one); captioned_photos.py gives them captions of 5 to 40
words, and a tokenizer. One epoch each, in turn: images alone (RandomResizedCrop(224), bytes), texts alone, and both.
CPU time is the process's, so it has the tokenizer's own threads in it; medians over the rounds, and the median of the
rounds' ratios. Then the tokenizer alone, in one thread (TOKENIZERS_PARALLELISM=false in a process of its own) and as it
comes: a text a call, as a DataLoader's `__getitem__` encodes, with padding to the maximum; a batch a call; and as the
loader does, which puts the tokens at both ends around the ids itself.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from captioned_photos import Captions, make
from harness import HIDDEN, arguments, cost, epoch, in_turns, machine, medians
from tokenizers import Tokenizer

import headrace as hr
from headrace.fields.tokens.tokenizers import resolve_tokenizer


def encode_alone(path, max_length, batch_size):
    """Print what one process needs a text: a text a call, and a batch a call."""
    source = Captions(seed=3)
    texts = [source.draw() for _ in range(2048)]
    single, library = (Tokenizer.from_file(str(path)) for _ in range(2))
    for tokenizer in (single, library):
        tokenizer.enable_truncation(max_length)
    single.enable_padding(length=max_length, pad_id=0)
    library.no_padding()
    encoder = resolve_tokenizer(str(path), max_length=max_length)
    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    ways = {
        "a text a call, padded": lambda: [single.encode(text).ids for text in texts],
        "a batch a call": lambda: [[each.ids for each in library.encode_batch_fast(batch)] for batch in batches],
        "as the loader does": lambda: [encoder.encode(batch) for batch in batches],
    }
    found = medians(in_turns({name: partial(cost, way) for name, way in ways.items()}, 7))
    tokens = sum(len(ids) for batch in batches for ids in encoder.encode(batch))
    for name, (wall_s, cpu_s) in found.items():
        print(f"  {name:<24}{cpu_s / len(texts) * 1e6:>8.1f} us CPU a text  {tokens / wall_s:>12,.0f} tokens/s")


def compare_epochs(args, tokenizer, manifest):
    dataset, view = hr.open(manifest, root=args.photos), {"view": hr.RandomResizedCrop(224, flip=0.5)}
    image, text = {"image": hr.Image()}, {"text": hr.Text(tokenizer, max_length=args.max_length)}
    options = {"batch_size": args.batch_size, "shuffle": True, "threads": args.threads, "output": "numpy"}
    loaders = {
        "images": hr.Loader(dataset, image, **view, **options),
        "texts": hr.Loader(dataset, text, **options),
        "both": hr.Loader(dataset, image | text, **view, **options),
    }
    found = in_turns({name: partial(epoch, each) for name, each in loaders.items()}, args.rounds, warm_up=1)
    samples = loaders["both"].samples
    print(machine())
    print(f"{samples:,} photographs, batches of {args.batch_size}, {args.threads} threads, {args.rounds} rounds\n")
    print(f"{'':<24}{'us CPU a sample':>16}{'samples/s':>12}")
    for name, (wall_s, cpu_s) in medians(found).items():
        print(f"{name:<24}{cpu_s / samples * 1e6:>16.1f}{samples / wall_s:>12,.0f}")
    images, texts, both = ([cpu_s for _, cpu_s in rounds] for rounds in found.values())
    beside = statistics.median(b / i - 1 for b, i in zip(both, images, strict=True))
    alone = statistics.median(t / i for t, i in zip(texts, images, strict=True))
    print(f"\nText beside images adds {beside:.1%} to their CPU time; an epoch of texts alone takes {alone:.1%} of it.")


def main():
    hidden = {"type": Path, **HIDDEN}
    args = arguments(__doc__, "photos", rounds=7, threads=2, batch_size=64, max_length=77, encode=hidden)
    if args.encode is not None:
        encode_alone(args.encode, args.max_length, args.batch_size)
        return
    with tempfile.TemporaryDirectory() as folder:
        make(args.photos, Path(folder), times=1)
        tokenizer = Path(folder, "tokenizer.json")
        compare_epochs(args, tokenizer, Path(folder, "captions.jsonl"))
        sizes = ["--batch-size", str(args.batch_size), "--max-length", str(args.max_length)]
        command = [sys.executable, __file__, args.photos, "--encode", tokenizer, *sizes]
        for how, settings in (("in one thread", {"TOKENIZERS_PARALLELISM": "false"}), ("as it comes", {})):
            print(f"\nThe tokenizer alone, {how}", flush=True)
            subprocess.run(command, check=True, env=os.environ | settings)


if __name__ == "__main__":
    main()
