"""Run a command with the probe in every Python process that it starts."""

from .command import DOCTOR_FAILED, FAULTY_DATA, CommandResult, exit_status, run_command
from .injection import probe_environment, trackers_offline
from .process_tree import Leftover, Patience
from .relay import BelowOutput
from .written_files import list_folder, written_text
