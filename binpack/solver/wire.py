"""How parent and solver process speak: frames of a 4-byte length and one MessagePack value over two pipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from binpack.solver.instance import Budget
from binpack.solver.question import Answer, Question

HEADER_BYTES: Final = 4
READY: Final = b"\x00\x00\x00\x00"  # an empty frame: OR-Tools is loaded, questions may come


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One solve."""

    question: Question
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer, or the text of what went wrong."""

    answer: Answer | None = None
    error: str = ""


_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_replies = msgspec.msgpack.Decoder(Reply)


def framed(value: Request | Reply) -> bytes:
    """Return the frame that carries the value."""
    body = _encoder.encode(value)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_bytes(header: bytes) -> int:
    """Return how many bytes follow this header."""
    return int.from_bytes(header, "big")


def request(body: bytes) -> Request:
    """Read a request.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return _requests.decode(body)


def reply(body: bytes) -> Reply:
    """Read a reply.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return _replies.decode(body)
