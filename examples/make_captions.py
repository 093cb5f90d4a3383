"""Draws pictures of one thing in a room, describes each in several sentences, and trains a tokenizer on these.

    python examples/make_captions.py captions [--count 512] [--height 64]

captions/images            JPEGs
captions/captions.jsonl    {"image": "0000.jpg", "text": [sentence, sentence, sentence], "thing": "red ball"} a line
captions/tokenizer.json    byte-level BPE of the `tokenizers` library; a text begins and ends with tokens of its own
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image
from scenes import draw, furnished
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

COLOURS = {"rgb": "golden", "rbg": "pink", "grb": "green", "gbr": "teal", "brg": "violet", "bgr": "blue"}
KINDS = ("ball", "box", "can")
SENTENCES = (
    "a {colour} {kind}",
    "a {size} {kind} that is {colour}, {place}",
    "in an empty room with a window there is a {size} {colour} {kind}, {place}, and nothing else",
    "{place} stands a {colour} {kind}; it is {size}",
)
PAD, BEGIN, END = "<pad>", "<start>", "<end>"


def described(number, kind):
    """What `draw(number, …, only=kind)` shows, in words."""
    thing = furnished(np.random.default_rng([number, 2024]), kind)[-1]
    strongest_first = "".join("rgb"[channel] for channel in np.argsort(-thing.colour))
    x = thing.centre[0]
    words = {
        "colour": COLOURS[strongest_first],
        "kind": kind,
        "size": "large" if thing.size[0] > 0.35 else "small",
        "place": "on the left" if x < -0.06 else "on the right" if x > 0.06 else "in the middle",
    }
    return f"{words['colour']} {kind}", [sentence.format(**words) for sentence in SENTENCES]


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=[PAD, BEGIN, END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in (BEGIN, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A {END}", special_tokens=ends)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(PAD), pad_token=PAD)
    return tokenizer


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--count", type=int, default=512)
    ask.add_argument("--height", type=int, default=64, help="in pixels")
    args = ask.parse_args()
    images = args.folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(args.count):
        kind = KINDS[number % len(KINDS)]
        scene = draw(number, args.height, args.height * 4 // 3, only=kind)
        Image.fromarray(scene.rgb).save(images / f"{number:04}.jpg", quality=92)
        thing, texts = described(number, kind)
        rows.append({"image": f"{number:04}.jpg", "text": texts, "thing": thing})
    (args.folder / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train_tokenizer(text for row in rows for text in row["text"]).save(str(args.folder / "tokenizer.json"))
    print(f"{args.folder}: {args.count} pictures, {len(SENTENCES)} captions each")


if __name__ == "__main__":
    main()
