"""Removal of credentials from text before it is written: in addresses, headers, options and named settings.

The texts are foreign: settings of loaders, command lines, keys of samples, tracebacks. A removed credential shows as
`***`, so that the reader sees that something was cut.
"""

from __future__ import annotations

import re

CUT = "***"
_QUOTE = r"\\?[\"']"  # also the escaped quote of JSON within a text
_IN_QUOTES = r"(?:[^\"'\\]|\\[^\"'])+"
_WORD = r"(?!None\b|null\b|true\b|false\b)(?:[^\s\"'\\,;&)]|\\[^\"'])+"
_NAMED = (
    r"(?:secret(?:[_-]?access)?(?:[_-]?key)?|passw(?:or)?d|passphrase|credential|connection[_-]string|authorization"
    r"|(?:session|access|auth|security|sas|hf|bearer)[_-]?token|(?:account|access|api)[_-]?key(?:[_-]?id)?)"
)
"""Endings of setting names that hold a credential, as used by the SDKs and command lines of object stores."""
_NAMES = ("secret", "passw", "passphrase", "credential", "connection", "authorization", "token", "key")


def _cut(pattern: str, cut: str, *hints: str) -> tuple[tuple[str, ...], re.Pattern[str], str]:
    return hints, re.compile(pattern, re.IGNORECASE), cut


_CUTS = [
    _cut(r"(bearer\s+)[\w.~+/=-]{6,}", rf"\1{CUT}", "bearer"),
    _cut(r"(authorization\W{1,6}(?:basic|token)\s+)[\w.~+/=-]{4,}", rf"\1{CUT}", "authorization"),
    _cut(r"(?<=://)[^/@\s\"'<>]{1,1100}@", f"{CUT}@", "://"),
    _cut(r"(://[^\s?\"'<>\\]{0,1100})\?[^\s\"'<>\\]+", rf"\1?{CUT}", "://"),
    _cut(r"(x-(?:amz|goog)-[\w-]{1,40})=[^&\s\"'\\]+", rf"\1={CUT}", "x-amz", "x-goog"),
    _cut(rf"\b(awsaccesskeyid|signature|sig)={_WORD}", rf"\1={CUT}", "sig", "awsaccesskeyid"),
    _cut(rf"({_NAMED}{_QUOTE}\s*:\s*{_QUOTE})(?!bearer |basic |token ){_IN_QUOTES}", rf"\1{CUT}", *_NAMES),
    _cut(rf"({_QUOTE}token{_QUOTE}\s*:\s*{_QUOTE}){_IN_QUOTES}", rf"\1{CUT}", "token"),
    _cut(rf"({_NAMED}\s*[=:]\s*(?:{_QUOTE})?)(?!(?:basic|bearer|token)\s|[\s\"'{{\[\\]){_WORD}", rf"\1{CUT}", *_NAMES),
    # Command options, in a single string and as a list.
    _cut(rf"(--[\w-]{{0,30}}{_NAMED}(?:\s+|{_QUOTE},\s*{_QUOTE})){_WORD}", rf"\1{CUT}", *_NAMES),
    _cut(rf"(--token(?:=|\s+|{_QUOTE},\s*{_QUOTE})){_WORD}", rf"\1{CUT}", "--token"),
    _cut(
        rf"((?<![\w-])(?:-u|--user)(?:\s+|=|{_QUOTE},\s*{_QUOTE}){_QUOTE}?)[^\s\"':]{{1,80}}:{_WORD}",
        rf"\1{CUT}",
        *("-u ", '-u"', "-u'", "-u\\", "--user"),
    ),
    _cut(r"\b(?:AKIA|ASIA)[0-9A-Z]{10,}", CUT, "akia", "asia"),
    _cut(r"\b(?:hf|gh[oprsu])_[A-Za-z0-9]{16,}", CUT, "hf_", "gh"),
]


def without_credentials(text: str) -> str:
    """Return the text with `***` in place of each credential recognised by form or by name."""
    low = text.lower()
    for hints, pattern, cut in _CUTS:
        if any(hint in low for hint in hints):
            text = pattern.sub(cut, text)
    return text
