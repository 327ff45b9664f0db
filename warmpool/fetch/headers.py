"""What HTTP headers say of a file: size, version, checksum, patience. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_REPR_DIGEST = re.compile(r"(?:\A|[,\s])sha-256=:([A-Za-z0-9+/=]{44}):")


def content_range(text: str | None) -> tuple[int, int, int | None] | None:
    """Return (start, end, whole size) with an exclusive end, of `bytes 0-9/100`; None where it is not one.

    An unsatisfied range (`bytes */0`) gives (0, 0, size). Source: RFC 9110 14.4.
    """
    found = _CONTENT_RANGE.match((text or "").strip())
    if found is None:
        return None
    first, last, whole = found.groups()
    size = None if whole == "*" else int(whole)
    if first is None:
        return 0, 0, size
    start, end = int(first), int(last) + 1
    return (start, end, size) if start < end and (size is None or end <= size) else None


def strong_validator(headers: Mapping[str, str]) -> str | None:
    """Return what may stand in If-Range, None where nothing is strong enough.

    A strong ETag; else Last-Modified where the server's own Date is a second later or more, so that no second version
    can share it. Source: RFC 9110 8.8.1, 8.8.2.2, 13.1.5.
    """
    tag = headers.get("ETag", "").strip()
    if len(tag) >= 2 and tag.startswith('"') and tag.endswith('"'):
        return tag
    modified, date = headers.get("Last-Modified", ""), headers.get("Date", "")
    modified_at, sent_at = _date(modified), _date(date)
    if modified_at is None or sent_at is None or (sent_at - modified_at).total_seconds() < 1:
        return None
    return modified


def is_other_version(validator: str | None, headers: Mapping[str, str]) -> bool:
    """Return whether these headers name a version that is not the one begun with."""
    if validator is None:
        return False
    now = headers.get("ETag" if validator.startswith('"') else "Last-Modified")
    return now is not None and now.strip() != validator


def sha256_of(headers: Mapping[str, str]) -> str | None:
    """Return the checksum of the whole file where the server names it, as 64 hex digits.

    `Repr-Digest: sha-256=:base64:` (RFC 9530), else `X-Linked-ETag`, which the Hugging Face Hub sends with its redirect
    for files in large file storage (huggingface_hub, file_download.py).
    """
    found = _REPR_DIGEST.search(headers.get("Repr-Digest", ""))
    if found is not None:
        try:
            return base64.b64decode(found.group(1), validate=True).hex()
        except binascii.Error:
            return None
    linked = headers.get("X-Linked-ETag", "").strip().strip('"').lower()
    return linked if _SHA256.match(linked) else None


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds that the server asks to wait, from number or date; 0 where it says nothing."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    until, sent_at = _date(text), _date(headers.get("Date", ""))
    return max(0.0, (until - sent_at).total_seconds()) if until is not None and sent_at is not None else 0.0


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return found if found.tzinfo is not None else None
