"""What the exporter answers and the controller reads. Ages, never stamps: two machines' clocks differ."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from fleet.errors import DecodeError
from scaler.balancer.values import BackendSecond

SAMPLES_PATH = "/v1/samples"
_KEPT = 30
# What is behind fits into a few answers: 30 s of 5,000 replicas are 29 MB, which nobody would take at once.
_MOST_BYTES = 2 * 2**20


class SecondAnswer(msgspec.Struct, frozen=True):
    """One second of every backend.

    Attributes:
        seq: Number of the second since the exporter started; a number left out is a second that was not seen.
        age_s: Time since its end, by the exporter's clock, when the answer was written.
        backends: Their `at_s` is 0: only the age counts.
    """

    seq: int
    age_s: float
    backends: tuple[BackendSecond, ...]


class SamplesAnswer(msgspec.Struct, frozen=True):
    """Answer to GET /v1/samples?since=SEQ.

    Attributes:
        exporter: Random name of this run of the exporter: another one means that it was restarted and counts anew.
        next: What `since` should be next.
        seconds: Newer than `since`, oldest first; at most the last 30, and of many replicas the newest alone.
    """

    exporter: str
    next: int
    seconds: tuple[SecondAnswer, ...]


class _EncodedSecond(msgspec.Struct, frozen=True):
    seq: int
    age_s: float
    backends: msgspec.Raw


class _EncodedAnswer(msgspec.Struct, frozen=True):
    exporter: str
    next: int
    seconds: tuple[_EncodedSecond, ...]


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(SamplesAnswer)


def samples_from(body: bytes) -> SamplesAnswer:
    """Decode an answer.

    Raises:
        DecodeError: It is none.
    """
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"not an exporter's answer: {error}") from error


class Journal:
    """The last 30 seconds, each encoded once however many ask."""

    def __init__(self, exporter: str) -> None:
        self._exporter = exporter
        self._kept: deque[tuple[int, float, msgspec.Raw]] = deque(maxlen=_KEPT)

    def add(self, seq: int, ended_at_s: float, backends: Sequence[BackendSecond]) -> None:
        """Keep a second; numbers only grow.

        Args:
            seq: Its number.
            ended_at_s: When it ended, on the exporter's monotonic clock.
            backends: With `at_s` = 0.
        """
        self._kept.append((seq, ended_at_s, msgspec.Raw(_encode(backends))))

    def answer(self, since: int, now_s: float) -> bytes:
        """Return the encoded `SamplesAnswer`; a `since` from the future (another run's) gets everything.

        The newest second is always in it, older ones as far as they fit: what is left out is a gap.
        """
        newest = self._kept[-1][0] if self._kept else 0
        if since > newest:
            since = 0
        seconds: deque[_EncodedSecond] = deque()
        size = 0
        for seq, ended_at_s, backends in reversed(self._kept):
            size += len(bytes(backends))
            if seq <= since or (seconds and size > _MOST_BYTES):
                break
            seconds.appendleft(_EncodedSecond(seq=seq, age_s=round(max(0.0, now_s - ended_at_s), 4), backends=backends))
        return _encode(_EncodedAnswer(exporter=self._exporter, next=newest, seconds=tuple(seconds)))
