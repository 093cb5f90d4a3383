"""The JSON report: the session, which can be shown again, with the diagnosis beside it for other programs."""

from __future__ import annotations

import msgspec

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.report.escape import safe_json
from headrace.doctor.session.document import encode
from headrace.doctor.session.model import Session


def document(session: Session, diagnosis: Diagnosis | None, prescription: Prescription | None = None) -> str:
    """One JSON object: the session's fields, `diagnosis` and `prescription`, which are not read again but made anew.

    Without a diagnosis, where the analysis failed, `diagnosis` is null; `prescription` likewise.
    """
    parts = {"diagnosis": diagnosis, "prescription": prescription}
    beside = [b'"%s":%s' % (name.encode(), msgspec.json.encode(part)) for name, part in parts.items()]
    whole = b",".join([encode(session)[:-1], *beside]) + b"}\n"
    return safe_json(whole.decode())
