"""An HTTP client that answers as Prometheus would, from what a test puts in; no socket, no real time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleet.http import FetchError

Element = tuple[Mapping[str, str], str, float | None]  # labels, value as text, stamp


def vector(elements: Sequence[tuple[Mapping[str, str], Any]], *, at_s: float = 1000.0, **more: Any) -> bytes:
    """Return the body of an answer with an instant vector."""
    result = [{"metric": dict(labels), "value": [at_s, value]} for labels, value in elements]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more}).encode()


def dated_vector(elements: Sequence[Element], *, at_s: float) -> bytes:
    """Return the body of an answer to a dated query; an element without a stamp has ended."""
    halves: list[tuple[Mapping[str, str], str]] = []
    for labels, value, stamp_s in elements:
        halves.append(({**labels, "berthmaster_part": "value"}, value))
        if stamp_s is not None:
            halves.append(({**labels, "berthmaster_part": "stamp"}, str(stamp_s)))
    return vector(halves, at_s=at_s)


class FakePost:
    """Answers each query with what `answer` returns: a body, an error to raise, or None for silence for ever."""

    def __init__(self, answer: Callable[[str], bytes | FetchError | None]) -> None:
        self.answer = answer
        self.asked: list[dict[str, str]] = []
        self.urls: set[str] = set()
        self.at_once = 0
        self.most_at_once = 0
        self.cancelled = 0

    async def post_form(
        self, url: str, form: dict[str, str], *, token: object, timeout_s: float, largest_bytes: int
    ) -> bytes:
        self.asked.append(form)
        self.urls.add(url)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            found = self.answer(form["query"])
            if found is None:
                await asyncio.get_running_loop().create_future()
                raise AssertionError("nobody answers this")
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            if isinstance(found, FetchError):
                raise found
            return found
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.at_once -= 1
