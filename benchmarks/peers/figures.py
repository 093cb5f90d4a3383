"""Medians and ratios of the runs in results.json; None where a loader has none."""

import statistics

from registry import BY_NAME, OWN


def figures(results, name, **keys):
    """The median of each figure over a loader's runs of these keys; None without one that has finished."""
    runs = [run for run in results.find(peer=name, **keys) if "failed" not in run]
    if not runs:
        return None
    names = [key for key, value in runs[0].items() if isinstance(value, float | int) and key != "round"]
    return {key: statistics.median(run[key] for run in runs) for key in names}


def own_ratio(results, name, task):
    """How many times a loader's images/s Headrace gave in the runs beside it; None where one has none."""
    own = figures(results, OWN.name, kind="throughput", task=task, beside=name)
    peer = figures(results, name, kind="throughput", task=task)
    return None if own is None or peer is None else own["images_per_s"] / peer["images_per_s"]


def rows(results, names, **keys):
    """(name, figures) of those that have any, in the order given."""
    found = [(name, figures(results, name, **keys)) for name in names]
    return [(name, row) for name, row in found if row is not None]


def missing(results, names, task=None, **keys):
    """(name, reason) of those without figures: refused, failed (also in being converted), or not run."""
    for name in names:
        keys_of_runs = {**keys, **({} if task is None else {"task": task})}
        if figures(results, name, **keys_of_runs) is None:
            yield name, _reason(results, name, task, keys_of_runs)


def _reason(results, name, task, keys):
    refused = BY_NAME[name].refuses.get(task)
    failed = [run["failed"] for run in results.find(peer=name, **keys) if "failed" in run]
    unconverted = [run["failed"] for run in results.find(peer=name, kind="prepare") if "failed" in run]
    if refused is not None:
        return f"not comparable: {refused}"
    if failed:
        return f"failed: {failed[-1]}"
    return f"could not be converted: {unconverted[-1]}" if unconverted else "not run"
