"""Reports of a diagnosis: terminal, HTML and JSON."""

from __future__ import annotations

from headrace.doctor.report.outputs import Outputs, document, write_whole
from headrace.doctor.report.terminal import show
from headrace.doctor.report.view import report_view
