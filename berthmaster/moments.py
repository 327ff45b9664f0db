"""Moments as people type them: `09:30`, `-30m`, an ISO date and time. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Final

from fleet.errors import DecodeError

_AGO: Final = re.compile(r"-?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
_FORMS: Final = "09:30, 09:30:15, -30m, -1h15m, now, or 2026-11-30T09:30:00Z"


def moment(text: str, now_s: float, zone: tzinfo) -> float:
    """Return seconds since the epoch.

    A time of day is the last one that has passed; a length of time is counted back from now.

    Args:
        text: One of the forms.
        now_s: Seconds since the epoch.
        zone: Of a time of day and of a date without one.

    Raises:
        DecodeError: It is none of the forms.
    """
    word = text.strip()
    if word == "now":
        return now_s
    if _CLOCK.fullmatch(word):
        return _time_of_day(word, text, datetime.fromtimestamp(now_s, zone))
    ago = _AGO.fullmatch(word)
    if ago and any(ago.groups()):
        hours, minutes, seconds = (int(part or 0) for part in ago.groups())
        return now_s - timedelta(hours=hours, minutes=minutes, seconds=seconds).total_seconds()
    try:
        at = datetime.fromisoformat(word)
    except ValueError:
        raise DecodeError(f"{text!r} is no moment: {_FORMS}") from None
    return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()


def _time_of_day(word: str, text: str, now: datetime) -> float:
    hour, minute, *rest = (int(part) for part in word.split(":"))
    try:
        at = now.replace(hour=hour, minute=minute, second=rest[0] if rest else 0, microsecond=0)
    except ValueError:
        raise DecodeError(f"{text!r} is no time of day: {_FORMS}") from None
    return (at if at <= now else at - timedelta(days=1)).timestamp()
