"""Draw results.json as SVGs of bars.

    python chart.py throughput RESULTS.json OUT.svg [TASK …]      images a second, a panel a task
    python chart.py start-up RESULTS.json OUT.svg                 first batch and memory over 1,000,000 samples

Headrace is blue, and a loader whose images were decoded beforehand is an outline.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from figures import rows
from registry import BY_NAME
from results import Results
from task import RECIPES, TASKS

OUTPUTS = {"uint8": "uint8", "float32": "float32, normalised"}
WIDTH, LABEL, BAR, ROW = 760, 150, 480, 26
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600 }
  .own { fill: #1f6feb } .peer { fill: #afb8c1 } .decoded { fill: none; stroke: #afb8c1; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #d1d9e0 } .peer { fill: #656d76 } .decoded { stroke: #656d76 }
  }
"""


@dataclass(frozen=True)
class Panel:
    title: str
    values: list[tuple[str, float]]  # from the top
    show: Callable[[float], str]
    most: float  # what the longest bar stands for


def lines(panel, top):
    yield f'<text class="title" x="0" y="{top + 16}">{escape(panel.title)}</text>'
    for index, (name, value) in enumerate(panel.values):
        y, width = top + 28 + index * ROW, value / panel.most * BAR
        yield f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect class="{kind(name)}" x="{LABEL}" y="{y}" width="{width:.0f}" height="18" rx="2"/>'
        yield f'<text x="{LABEL + width + 8:.0f}" y="{y + 14}">{escape(panel.show(value))}</text>'


def kind(name):
    if name.startswith("headrace"):
        return "own"
    return "decoded" if BY_NAME[name].decoded else "peer"


def svg(panels):
    body, top = [], 0
    for panel in panels:
        body += lines(panel, top)
        top += 28 + len(panel.values) * ROW + 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *body, "</svg>"]) + "\n"


def throughput(results, tasks):
    """Fastest first, all panels to one scale; a task without figures has none."""
    rates = {}
    for name in tasks:
        found = rows(results, BY_NAME, kind="throughput", task=name)
        rates[name] = sorted(((peer, row["images_per_s"]) for peer, row in found), key=lambda pair: -pair[1])
    most = max(value for values in rates.values() for _, value in values)
    for name, values in rates.items():
        if values:
            title = f"{RECIPES[TASKS[name].recipe]}, {OUTPUTS[TASKS[name].dtype]}"
            yield Panel(title, values, lambda value: f"{value:,.0f} images/s", most)


def start_up(results):
    """Least first."""
    found = rows(results, BY_NAME, kind="start-up")
    first = sorted(((name, row["first_batch_s"]) for name, row in found), key=lambda pair: pair[1])
    memory = sorted(((name, row["memory_bytes"] / 1e6) for name, row in found), key=lambda pair: pair[1])
    yield Panel("First batch over 1,000,000 samples", first, lambda value: f"{value:.2f} s", first[-1][1])
    yield Panel("Memory of all its processes", memory, lambda value: f"{value:,.0f} MB", memory[-1][1])


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("what", choices=["throughput", "start-up"])
    ask.add_argument("results", type=Path)
    ask.add_argument("out", type=Path)
    ask.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)}; all without one")
    args = ask.parse_args()
    results = Results(args.results)
    panels = throughput(results, args.tasks or TASKS) if args.what == "throughput" else start_up(results)
    args.out.write_text(svg(panels))


if __name__ == "__main__":
    main()
