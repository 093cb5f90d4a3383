"""What does each form of a pack cost, and how many images a second does the Loader make of it?

    python benchmarks/packs.py PHOTOS [--images 1500] [--threads 2] [--rounds 5] [--short-side 256]

PHOTOS is a folder of photographs (make_photos.py). Packs lie in a temporary folder, in the page cache; packing time
includes its estimate. RandomResizedCrop(224) and flips to uint8; rounds are interleaved. Images per second are medians;
CPU time per image, with the kernel's, is the minimum, which a busy machine changes least.
"""

import statistics
import tempfile
from functools import partial
from pathlib import Path

from harness import arguments, epoch, in_turns, machine

import headrace as hr
from headrace.pack import Form, PackOptions, pack


def main():
    args = arguments(__doc__, "photos", images=1500, threads=2, rounds=5, short_side=256)
    print(f"{machine()}; {args.threads} threads")
    source = hr.open(args.photos)[: args.images]
    data, reports = {"originals": source}, {}
    with tempfile.TemporaryDirectory() as folder:
        for form in Form:
            options = PackOptions(form=form, short_side=None if form is Form.lossless else args.short_side)
            reports[form] = pack(source, Path(folder, form), options, threads=args.threads)
            data[form] = hr.open(str(Path(folder, form, "shard-*.tar")))
        fields = {"x": hr.Image(source="image")}
        settings = {"batch_size": 128, "output": "numpy", "threads": args.threads, "seed": 0}
        loaders = {
            form: hr.Loader(each, fields, view=hr.RandomResizedCrop(224, flip=0.5), **settings)
            for form, each in data.items()
        }
        cases = {form: partial(epoch, loader) for form, loader in loaders.items()}
        found = in_turns(cases, 2 * args.rounds, warm_up=1)
    read = reports[Form.lossless].source_bytes
    print(f"{'':10}{'bytes/image':>12}{'packed MB/s':>12}{'images/s':>10}{'best':>9}{'CPU us/image':>14}")
    for form, spent in found.items():
        report = reports.get(form)
        size, rate = (read, "") if report is None else (report.bytes, f"{read / report.wall_s / 1e6:.0f}")
        speeds = [len(source) / wall_s for wall_s, _ in spent]
        cpu_us = min(cpu_s for _, cpu_s in spent) / len(source) * 1e6
        middle = statistics.median(speeds)
        print(f"{form:10}{size / len(source):12,.0f}{rate:>12}{middle:10,.0f}{max(speeds):9,.0f}{cpu_us:14.1f}")


if __name__ == "__main__":
    main()
