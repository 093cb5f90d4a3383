"""Write the figures of results.json into a page, between the marks that it holds for them.

    python page.py RESULTS.json docs/benchmarks/peers.md

A block of the page begins with a line <!-- NAME --> and ends with <!-- /NAME -->; the names are those of BLOCKS.
"""

import argparse
import operator
from pathlib import Path

from figures import figures, missing, own_ratio, rows
from registry import BY_NAME, OWN, PEERS
from results import Results
from task import RECIPES, TASKS

MB = 1e6
COMPARED = (
    ("images/s", "images_per_s", operator.gt),
    ("CPU an image", "cpu_ms_per_image", operator.lt),
    ("first batch", "first_batch_s", operator.lt),
    ("memory", "memory_bytes", operator.lt),
)
STEADY = ("images_per_s", "cpu_ms_per_image")  # not of interest over tiny images
FLAT = 5  # images of one colour that need no word: a window may well fall into a clear sky


def machine(results):
    facts, versions = results.facts, results.facts.get("versions", {})
    yield f"{facts['date'][:10]}: {facts['cores']} cores, {facts['cpu']}, {facts['system']}, Python {facts['python']}."
    yield f"{facts['photos']:,} photographs of {facts['bytes_a_photo']:,} bytes on average."
    yield "Versions: " + ", ".join(f"{package} {number or 'from source'}" for package, number in versions.items()) + "."


def throughput(results):
    """A table a task, fastest first, then those without figures and why."""
    if results.find(kind="throughput"):
        yield "![Images a second beside nine other loaders](../throughput.svg)"
        yield ""
        yield "Blue is Headrace; an outline is a loader whose images were decoded beforehand."
        yield ""
    for task in TASKS.values():
        keys = {"kind": "throughput", "task": task.name}
        found = sorted(rows(results, BY_NAME, **keys), key=lambda row: -row[1]["images_per_s"])
        yield f"### {RECIPES[task.recipe]}, {task.dtype}"
        yield ""
        yield "| loader | images/s | Headrace is | CPU ms an image | first batch | memory | of imports | of files |"
        yield "|---|--:|--:|--:|--:|--:|--:|--:|"
        for name, row in found:
            ratio = own_ratio(results, name, task.name)
            yield cells(
                name,
                f"{row['images_per_s']:,.0f}",
                "" if ratio is None else f"{ratio:.2f} ×",
                f"{row['cpu_ms_per_image']:.2f}",
                f"{row['first_batch_s']:.2f} s",
                *memory(row),
            )
        yield ""
        yield from reasons([*missing(results, BY_NAME, **keys), *blank(found)])


def blank(found):
    for name, row in found:
        if row["blank_images"] > FLAT:
            yield name, f"{row['blank_images']:.0f} images of the first and last batch were of one colour"


def start_up(results):
    """Soonest first batch first; what each had to do beforehand stands beside it."""
    keys = {"kind": "start-up"}
    names = [name for name, peer in BY_NAME.items() if peer.start_up]
    if results.find(**keys):
        yield "![First batch and memory over 1,000,000 samples](start-up.svg)"
        yield ""
    yield "| loader | first batch | imports | memory | of imports | of files | converted beforehand in |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name, row in sorted(rows(results, names, **keys), key=lambda row: row[1]["first_batch_s"]):
        made = figures(results, name, kind="prepare", dataset="tiny-1000000")
        beforehand = "" if made is None else f"{made['prepare_s']:,.0f} s"
        yield cells(name, f"{row['first_batch_s']:.2f} s", f"{row['import_s']:.1f} s", *memory(row), beforehand)
    yield ""
    yield from reasons(missing(results, names, **keys))


def conversion(results):
    dataset = next((run["dataset"] for run in results.find(kind="prepare") if run["dataset"].startswith("photos-")), "")
    yield "| loader | form | converted in | bytes an image |"
    yield "|---|---|--:|--:|"
    for name, row in rows(results, BY_NAME, kind="prepare", dataset=dataset):
        each = row["prepared_bytes"] / int(dataset.rpartition("-")[2])
        yield cells(name, BY_NAME[name].form, f"{row['prepare_s']:,.1f} s", f"{each:,.0f}")


def differences(results):
    for name, peer in BY_NAME.items():
        yield f"- **{name}**: {peer.differs}"


def ahead(results):
    """Each figure in which a peer did better than Headrace, task by task."""
    for title, name, better in COMPARED:
        shares = {task: list(better_peers(results, name, better, kind="throughput", task=task)) for task in TASKS}
        shares["1,000,000 samples"] = (
            [] if name in STEADY else list(better_peers(results, name, better, kind="start-up"))
        )
        told = [f"{', '.join(peers)} ({task})" for task, peers in shares.items() if peers]
        yield f"- **{title}**: {'; '.join(told) if told else 'none'}"


def better_peers(results, name, better, **keys):
    own = figures(results, OWN.name, **keys)
    if own is None:
        return
    for peer, row in rows(results, [peer.name for peer in PEERS if peer.module != OWN.module], **keys):
        if better(row[name], own[name]):
            yield f"{peer} {row[name] / own[name]:.2f} ×"


BLOCKS = {block.__name__: block for block in (machine, throughput, start_up, conversion, differences, ahead)}


def cells(*texts):
    return f"| {' | '.join(texts)} |"


def memory(row):
    return [f"{row[name] / MB:,.0f} MB" for name in ("memory_bytes", "imported_bytes", "memory_file_bytes")]


def reasons(pairs):
    for name, reason in pairs:
        yield f"- {name}: {reason}"
    yield ""


def filled(page, results):
    """The page with every block written anew."""
    for name, block in BLOCKS.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, found, rest = page.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise SystemExit(f"expected a block {begin} … {end} in the page, found none")
        text = "\n".join(block(results)).strip("\n")
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("results", type=Path)
    ask.add_argument("page", type=Path)
    args = ask.parse_args()
    args.page.write_text(filled(args.page.read_text(), Results(args.results)))


if __name__ == "__main__":
    main()
