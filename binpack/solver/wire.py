"""How parent and solver process speak: frames of a 4-byte length and one MessagePack value over two pipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from binpack.solver.instance import Budget, Instance, Solution

HEADER_BYTES: Final = 4
READY: Final = b"\x00\x00\x00\x00"  # an empty frame: OR-Tools is loaded, questions may come


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One solve."""

    instance: Instance
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The solution, or the text of what went wrong."""

    solution: Solution | None = None
    error: str = ""


_encoder = msgspec.msgpack.Encoder()
_questions = msgspec.msgpack.Decoder(Question)
_answers = msgspec.msgpack.Decoder(Answer)


def framed(value: Question | Answer) -> bytes:
    """Return the frame that carries the value."""
    body = _encoder.encode(value)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_bytes(header: bytes) -> int:
    """Return how many bytes follow this header."""
    return int.from_bytes(header, "big")


def question(body: bytes) -> Question:
    """Read a question.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return _questions.decode(body)


def answer(body: bytes) -> Answer:
    """Read an answer.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return _answers.decode(body)
