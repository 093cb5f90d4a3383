"""The JSON report: the session, which can be shown again, with the diagnosis beside it for other programs."""

from __future__ import annotations

import msgspec

from headrace.doctor.analyse.diagnosis import Diagnosis
from headrace.doctor.session.document import encode
from headrace.doctor.session.model import Session

from .escape import safe_json


def document(session: Session, diagnosis: Diagnosis | None) -> str:
    """One JSON object: the session's fields and `diagnosis`, which is not read again but made anew.

    Without a diagnosis, where the analysis failed, `diagnosis` is null.
    """
    whole = encode(session)[:-1] + b',"diagnosis":' + msgspec.json.encode(diagnosis) + b"}\n"
    return safe_json(whole.decode())
