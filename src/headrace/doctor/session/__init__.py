"""Session: all measurements of one diagnosis, stored as one JSON document with the types of `model`."""

from headrace.doctor.session import model
from headrace.doctor.session.evidence_reader import FailedReplay, read_session
from headrace.doctor.session.storage import (
    SCRATCH,
    SESSION_FILE,
    SessionFolder,
    decode_session,
    encode_session,
    merged,
    saved_session,
    session_folder,
)
