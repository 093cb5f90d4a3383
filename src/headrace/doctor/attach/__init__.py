"""Run a command with the probe in every Python process that it starts."""

from headrace.doctor.attach.command import (
    DOCTOR_FAILED,
    FAULTY_DATA,
    CommandResult,
    exit_status,
    list_folder,
    run_command,
    written_text,
)
from headrace.doctor.attach.injection import probe_environment, trackers_offline
from headrace.doctor.attach.process_tree import Leftover, Patience
from headrace.doctor.attach.relay import BelowOutput
