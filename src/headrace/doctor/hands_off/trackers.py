"""Experiment trackers: offline, and their files in the session's folder. docs/doctor/hands-off.md has the variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_OFFLINE = {
    "WANDB_MODE": ("offline", {"disabled", "dryrun"}),
    "NEPTUNE_MODE": ("offline", {"debug", "disabled", "read-only"}),
    "SWANLAB_MODE": ("offline", {"disabled", "local"}),
    "CLEARML_OFFLINE_MODE": ("1", {"true", "yes"}),
    "COMET_START_ONLINE": ("0", {"false"}),
}
"""What takes each of them offline, and which of the user's own values do so as well."""
_FOLDERS = ("WANDB_DIR", "COMET_OFFLINE_DIRECTORY", "NEPTUNE_DATA_DIRECTORY", "NEPTUNE_LOG_DIRECTORY")
_ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_OF_A_SERVER = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID")
"""Numbers that mean nothing elsewhere."""


def offline(inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment with each tracker told to write to `folder` alone."""
    environment = {name: value for name, value in inherited.items() if name not in _OF_A_SERVER}
    for name, (value, others) in _OFFLINE.items():
        if environment.get(name, "").lower() not in others:
            environment[name] = value
    environment.update(dict.fromkeys(_FOLDERS, str(folder)))
    environment.update(dict.fromkeys(_ADDRESSES, (folder / "mlflow").as_uri()))
    return environment
