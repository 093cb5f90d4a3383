"""Session: all measurements of one diagnosis, read from evidence files and stored as one JSON document.

The types are in `model`.
"""

from . import model
from .evidence_reader import read_session
from .failed_replay import FailedReplay
from .merging import merged
from .storage import SCRATCH, SESSION_FILE, SessionFolder, decode_session, encode_session, saved_session, session_folder
