"""The exceptions that cross package borders; expected outcomes are values, not exceptions."""

from __future__ import annotations


class BerthmasterError(Exception):
    """Base of every error this project raises on purpose."""


class DecodeError(BerthmasterError):
    """A text or an object from outside that cannot be read; the message names it."""


class QuantityError(DecodeError):
    """A Kubernetes quantity that cannot be read, or not as the kind of number asked for."""


class ConfigError(BerthmasterError):
    """Configuration that contradicts itself; lists every problem found, not just the first."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class ApiError(BerthmasterError):
    """The API server answered with an error status, or not at all (status 0)."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class Conflict(ApiError):
    """409: somebody else wrote the object first, or it exists already."""


class NotFound(ApiError):
    """404: the object is gone."""


class Invalid(ApiError):
    """422: the API refused the content, or a JSON patch's test did not hold."""


class Gone(ApiError):
    """410: the resource version is too old to watch from; list again."""


class NotLeading(ApiError):
    """A write that was not started: its time-out would end after the lease does (status 0)."""


class LocalClusterError(BerthmasterError):
    """The local control plane could not be built, started or stopped; the message says what to do."""
