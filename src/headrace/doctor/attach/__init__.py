"""Run a command with the probe in every Python process that it starts."""

from headrace.doctor.attach.command import (
    DOCTOR_FAILED,
    FAULTY_DATA,
    OUTPUT,
    CommandResult,
    exit_status,
    run_command,
    trackers_offline,
)
from headrace.doctor.attach.process_tree import Patience
