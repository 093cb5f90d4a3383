"""Run a command with the probe in every Python process that it starts, and leave the user's files unchanged."""

from .command import DOCTOR_FAILED, FAULTY_DATA, CommandResult, exit_status, run_command
from .hands_off import Notes, hands_off_here, holds_files, is_undone, restore_session, unfinished_sessions
from .injection import end_fork_server, probe_environment
from .process_tree import Leftover, Patience, ProcessStat, parse_process_stat, process_stat
from .relay import BelowOutput
