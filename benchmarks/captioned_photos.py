"""Captions for photographs, and a tokenizer trained on them: what the benchmarks of text read.

    python benchmarks/captioned_photos.py PHOTOS OUT [--captions 3] [--times 8] [--vocabulary 8192]

OUT/captions.jsonl has --times lines for each photograph, {"image": path below PHOTOS, "text": [caption, …]}, of 5 to 40
words each, so that few photographs make an epoch of usual length. Words are made of syllables and come as often as a
language's do (Zipf: rank r with a share of 1/r), short ones more often.
OUT/tokenizer.json is a byte-level BPE of the `tokenizers` library, trained on them, that begins and ends a
text with tokens of their own, as CLIP's does.
"""

import json
import random
from itertools import accumulate

from harness import arguments, jpegs
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

WORDS, LEAST_WORDS, MOST_WORDS = 20_000, 5, 40
BEGIN, END, PAD = "<start>", "<end>", "<pad>"
ONSETS = ("b", "br", "c", "ch", "d", "f", "g", "gr", "h", "l", "m", "n", "p", "pl", "r", "s", "st", "t", "tr", "w")
RHYMES = ("a", "an", "ar", "e", "ed", "en", "er", "i", "in", "ing", "o", "on", "or", "ow", "u", "un")


def word(rng):
    return "".join(rng.choice(ONSETS) + rng.choice(RHYMES) for _ in range(rng.choice((1, 1, 2, 2, 2, 3, 4))))


class Captions:
    """Sentences without end, the same for one seed."""

    def __init__(self, seed=0):
        self._rng = random.Random(seed)
        self._words = sorted({word(self._rng) for _ in range(WORDS)}, key=len)
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self._words) + 1)))

    def draw(self):
        count = self._rng.randint(LEAST_WORDS, MOST_WORDS)
        return " ".join(self._rng.choices(self._words, cum_weights=self._weights, k=count)).capitalize() + "."


def train_tokenizer(texts, vocabulary):
    tokenizer, alphabet = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    options = {"special_tokens": [PAD, BEGIN, END], "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocabulary, **options))
    ends = [(name, tokenizer.token_to_id(name)) for name in (BEGIN, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A {END}", special_tokens=ends)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(PAD), pad_token=PAD)
    return tokenizer


def make(photos, out, captions=3, times=8, vocabulary=8192):
    """Write both files, and return the number of lines."""
    paths, source = [path.relative_to(photos) for path in jpegs(photos)] * times, Captions()
    rows = [{"image": str(path), "text": [source.draw() for _ in range(captions)]} for path in paths]
    out.mkdir(parents=True, exist_ok=True)
    (out / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = train_tokenizer((text for row in rows for text in row["text"]), vocabulary)
    tokenizer.save(str(out / "tokenizer.json"))
    return len(rows)


def main():
    args = arguments(__doc__, "photos", "out", captions=3, times=8, vocabulary=8192)
    count = make(args.photos, args.out, args.captions, args.times, args.vocabulary)
    print(f"{args.out}: {count} samples, {args.captions} captions each")


if __name__ == "__main__":
    main()
