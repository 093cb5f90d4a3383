"""Files of one split in a Hub dataset repository, by the layout that the Hub documents. Pure.

https://huggingface.co/docs/datasets/repository_structure: files have one format, and the split is in their names
(`train-00000-of-00002.parquet`) or in the name of their folder (`train/`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence

from headrace.data.manifest.manifest_table import ROW_SUFFIXES, is_beside_rows, split_of
from headrace.errors import UsageError

_ARCHIVES = (".tar", ".zip")
_MOST_SHOWN = 8


def files_of_split(repository: str, names: Sequence[str]) -> list[str]:
    """Return the sorted files with a repository's samples; empty if they are neither rows nor archives.

    `repository`: its address, for messages; `names`: all of its files. Raises UsageError for several splits, folders or
    formats, with the address of each.
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        folder, file = os.path.split(name)
        suffix = os.path.splitext(file)[1].lower()
        if any(part.startswith(".") for part in name.split("/")) or is_beside_rows(file):
            continue
        if suffix not in (*ROW_SUFFIXES, *_ARCHIVES) or suffix == ".txt":
            continue
        split = split_of(os.path.splitext(file)[0]) or ""
        groups[os.path.join(folder, f"{split}*{os.path.splitext(file)[1]}")].append(name)
    if len(groups) > 1:
        patterns = sorted(groups)
        shown = [f"{repository.rstrip('/')}/{pattern}" for pattern in patterns[:_MOST_SHOWN]]
        more = f", and {len(patterns) - _MOST_SHOWN:,} more" if len(patterns) > _MOST_SHOWN else ""
        raise UsageError(
            f"{repository}: expected a repository with the files of one split, got {len(patterns):,} groups of files. "
            f"Open one of them: {', '.join(shown)}{more}"
        )
    return sorted((name for group in groups.values() for name in group), key=os.fsencode)
