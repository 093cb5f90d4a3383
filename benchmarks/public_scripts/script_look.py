"""Run a training script up to its first pass over a DataLoader, and look at the values of that loader's dataset.

    python script_look.py LOOK SECONDS LAUNCHED SCRIPT [ARGUMENTS]

The look is written to the file LOOK. LAUNCHED is "launched" for a script that a launcher starts, else "alone". Printed,
on a line of its own, is JSON: the class of the dataset, the number of its samples, and the seconds that the look took.
"""

import json
import sys
import time
import traceback
import warnings

import stand_ins


def main() -> None:
    look, seconds, launched, *script = sys.argv[1:]
    sys.path.pop(0)  # names of ours would hide the script's
    warnings.simplefilter("ignore")
    stand_ins.install(is_launched="launched" in launched)

    from headrace.doctor.adoption.comparison import script_loader
    from headrace.doctor.probe.look.value_look import look_at_values

    loader = script_loader(script)
    said = {"class": type(loader.dataset).__name__}
    begun = time.monotonic()
    outline = look_at_values(loader, look, most_s=float(seconds))
    said["seconds"] = time.monotonic() - begun
    said["length"] = outline["length"]
    said["samples"] = len(outline["samples"])
    said["ended"] = outline["ended"]
    said["errors"] = sorted({each["error"] for each in outline["samples"] if "error" in each})
    print("\n" + json.dumps(said), flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        sys.exit(1)
