"""How a download can fail, each with the status that the command ends with."""

from __future__ import annotations

from fleet.errors import BerthmasterError


class DownloadError(BerthmasterError):
    """A download that did not happen; the message names source or file, and never a secret.

    Attributes:
        exit_status: What the command ends with.
    """

    exit_status = 1


class Refused(DownloadError):
    """The source said no, and will say no again: denied, not found, not understood."""


class NotThere(Refused):
    """The source does not have it (404, 410)."""


class WrongContent(DownloadError):
    """What came is not what was asked for: checksum, size, or a source that changes while it is read."""

    exit_status = 3


class Changed(WrongContent):
    """The source holds another version than the one begun with."""


class NoRoom(DownloadError):
    """The disk cannot take it and keep its reserve."""

    exit_status = 4


class Unavailable(DownloadError):
    """The source could not be reached, or broke off, again and again; what came is kept for the next try."""

    exit_status = 5


class Busy(BerthmasterError):
    """Another process fetches the same file just now."""


class Transient(BerthmasterError):
    """One request failed in a way that may pass.

    Attributes:
        retry_after_s: What the server asked to wait; 0 where it said nothing.
        is_throttled: Whether the server said that it is asked too much.
    """

    def __init__(self, message: str, retry_after_s: float = 0.0, *, is_throttled: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_throttled = is_throttled
