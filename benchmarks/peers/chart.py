"""Draw what run.py measured as one SVG of bars.

    python chart.py OUT.svg TITLE=RUNS.json [TITLE=RUNS.json …]
"""

import json
import statistics
import sys
from html import escape
from pathlib import Path

WIDTH, LABEL, BAR, ROW = 760, 190, 440, 26
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600 }
  .own { fill: #1f6feb } .peer { fill: #afb8c1 }
  @media (prefers-color-scheme: dark) { text { fill: #d1d9e0 } .peer { fill: #656d76 } }
"""


def rates(path):
    """Median images a second by name, fastest first."""
    runs = json.loads(Path(path).read_text())
    median = {name: statistics.median(run["images_per_s"] for run in results) for name, results in runs.items()}
    return sorted(median.items(), key=lambda item: -item[1])


def panel(title, rows, top, most):
    yield f'<text class="title" x="0" y="{top + 16}">{escape(title)}</text>'
    for index, (name, rate) in enumerate(rows):
        y = top + 28 + index * ROW
        kind = "own" if name.startswith("headrace") else "peer"
        yield f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{rate / most * BAR:.0f}" height="18" rx="2"/>'
        yield f'<text x="{LABEL + rate / most * BAR + 8:.0f}" y="{y + 14}">{rate:,.0f} images/s</text>'


def main():
    out, *pairs = sys.argv[1:]
    panels = [(title, rates(path)) for title, path in (pair.split("=", 1) for pair in pairs)]
    most = max(rate for _, rows in panels for _, rate in rows)
    body, top = [], 0
    for title, rows in panels:
        body += panel(title, rows, top, most)
        top += 28 + len(rows) * ROW + 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}">'
    Path(out).write_text("\n".join([head, f"<style>{STYLE}</style>", *body, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
