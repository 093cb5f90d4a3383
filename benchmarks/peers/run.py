"""Headrace beside its peers: interleaved rounds, a process a run, medians.

    python run.py PHOTOS --peers-python PATH [--recipe train|validate] [--dtype uint8|float32] [--rounds 3] [--json FILE]

--peers-python is the interpreter of an environment that has torch, torchvision, nvidia-dali-cuda130 and turboloader
(pip install torch torchvision nvidia-dali-cuda130 turboloader; several GB, never in CI).
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = {
    ("train", "uint8"): ["torchvision-uint8", "dali-uint8"],
    ("train", "float32"): ["torchvision-float32", "dali-float32", "turboloader-float32", "pillow"],
    ("validate", "uint8"): ["torchvision-uint8", "dali-uint8"],
    ("validate", "float32"): ["torchvision-float32", "dali-float32"],
}


def run(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos")
    ask.add_argument("--peers-python", required=True)
    ask.add_argument("--recipe", choices=["train", "validate"], default="train")
    ask.add_argument("--dtype", choices=["uint8", "float32"], default="uint8")
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--samples", type=int, default=6000)
    ask.add_argument("--json")
    args = ask.parse_args()
    common = [args.photos, "--recipe", args.recipe, "--samples", str(args.samples)]
    own = [sys.executable, str(HERE / "own.py"), *common, "--dtype", args.dtype]
    peers = [
        [args.peers_python, str(HERE / "peer.py"), peer, *common] for peer in PEERS[args.recipe, args.dtype]
    ]
    runs = {}
    for _ in range(args.rounds):
        for peer in peers:
            for command in (own, peer):
                result = run(command)
                runs.setdefault(result["name"], []).append(result)
    rows = {
        name: {key: statistics.median(r[key] for r in results) for key in results[0] if key != "name"}
        for name, results in runs.items()
    }
    best = max(row["images_per_s"] for name, row in rows.items() if not name.startswith("headrace"))
    for name, row in rows.items():
        print(
            f"{name:<22}{row['images_per_s']:>8,.0f} images/s {row['cpu_ms_per_image']:>7.3f} CPU ms/image "
            f"{row['first_batch_s']:>7.2f} s to the first batch"
        )
    print(f"{rows[f'headrace-{args.dtype}']['images_per_s'] / best:.2f} x the best peer, median of {args.rounds} rounds")
    if args.json:
        Path(args.json).write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
