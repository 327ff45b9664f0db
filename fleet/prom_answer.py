"""What Prometheus answered, as values: decoding never fails, it says what it could not use.

Format: Prometheus documentation, "HTTP API", instant and range queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

# Tells the two halves of a dated query apart; Prometheus keeps label names that begin with two underscores to itself.
_PART = "berthmaster_part"
_VALUE = "value"
_STAMP = "stamp"
_LONGEST_TEXT = 300
_MOST_WARNINGS = 20


class Outcome(StrEnum):
    """What became of a query. An empty list of series is an answer; the others are none."""

    ANSWERED = "answered"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"  # an error status, or status "error" in the body
    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One element of an instant vector.

    Attributes:
        labels: Without the metric's own name where the query dropped it.
        value: Finite.
        age_s: Evaluation time minus the sample's stamp, both on Prometheus' clock, at least 0; None = not asked for.
        stamp_s: The sample's stamp; None = not asked for.
    """

    labels: Mapping[str, str]
    value: float
    age_s: float | None = None
    stamp_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one query.

    Attributes:
        outcome: Only ANSWERED has series, and may have none.
        series: Usable elements.
        rejected: Elements without a usable value: not a number, infinite, a histogram, malformed, or without a stamp.
        warnings: What Prometheus said beside the data: the answer may be partial.
        text: What went wrong, for people; "" = nothing.
        was_asked: False where the time was over before it was its turn.
    """

    outcome: Outcome
    series: tuple[Series, ...] = ()
    rejected: int = 0
    warnings: tuple[str, ...] = ()
    text: str = ""
    was_asked: bool = True

    @property
    def is_answered(self) -> bool:
        """Return whether the absence of a series means that there is none."""
        return self.outcome is Outcome.ANSWERED


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What became of one range query.

    Attributes:
        outcome: Only ANSWERED has lines, and may have none.
        lines: Per series the finite values by their stamps, (stamp_s, value) in the order of time.
        text: What went wrong, for people; "" = nothing.
    """

    outcome: Outcome
    lines: tuple[tuple[tuple[float, float], ...], ...] = ()
    text: str = ""

    @property
    def is_answered(self) -> bool:
        """Return whether the absence of a value means that there is none."""
        return self.outcome is Outcome.ANSWERED


def failed(outcome: Outcome, text: str) -> Answer:
    """Return the answer that is none, with a text of bounded length."""
    return Answer(outcome=outcome, text=text[:_LONGEST_TEXT])


def dated(value: str, stamp: str) -> str:
    """Return one query for both the value of each series and the stamp of the sample it came from.

    An instant vector carries the evaluation time, not the sample's, so the stamp has to be asked for: up to five
    minutes of look-back are invisible otherwise.

    Args:
        value: PromQL of the value.
        stamp: PromQL with the same labels, of `timestamp(...)`.
    """
    halves = ((value, _VALUE), (stamp, _STAMP))
    return " or ".join(f'label_replace({query}, "{_PART}", "{name}", "", "")' for query, name in halves)


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - as on the wire
    result: msgspec.Raw


class _Envelope(msgspec.Struct):
    status: str
    data: _Data | None = None
    errorType: str = ""  # noqa: N815 - as on the wire
    error: str = ""
    warnings: list[Any] | None = None


class _Element(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str] | None = None


class _Line(msgspec.Struct):
    values: list[tuple[float, str]]


_envelope = msgspec.json.Decoder(_Envelope).decode
_vector = msgspec.json.Decoder(list[_Element]).decode
_element = msgspec.json.Decoder(_Element).decode
_matrix = msgspec.json.Decoder(list[_Line]).decode
_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_scalar = msgspec.json.Decoder(tuple[float, str]).decode


def decode_past(body: bytes) -> Past:
    """Return the answer to a range query in a response body, whatever it holds; values that are not finite are gaps."""
    opened = _opened(body)
    if isinstance(opened, Answer):
        return Past(outcome=opened.outcome, text=opened.text)
    data, _ = opened
    if data.resultType != "matrix":
        return Past(outcome=Outcome.UNREADABLE, text=f"the query gives a {data.resultType}; wanted is a range")
    try:
        lines = _matrix(data.result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Past(outcome=Outcome.UNREADABLE, text=f"matrix cannot be read: {error}"[:_LONGEST_TEXT])
    return Past(
        outcome=Outcome.ANSWERED,
        lines=tuple(
            tuple((stamp_s, value) for stamp_s, text in line.values if (value := _finite(text)) is not None)
            for line in lines
        ),
    )


def _opened(body: bytes) -> tuple[_Data, list[Any]] | Answer:
    """Return data and warnings of a successful answer, else what it is instead."""
    try:
        envelope = _envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return failed(Outcome.UNREADABLE, f"not an answer of Prometheus: {error}")
    if envelope.status != "success":
        return failed(Outcome.REFUSED, f"{envelope.errorType or envelope.status}: {envelope.error}")
    if envelope.data is None:
        return failed(Outcome.UNREADABLE, "status success without data")
    return envelope.data, envelope.warnings or []


def decode(body: bytes, *, is_dated: bool = False) -> Answer:
    """Return the answer in a response body, whatever it holds.

    Args:
        body: As received; it need not be JSON.
        is_dated: Whether the query was made by `dated`: values without a stamp are then rejected, because their series
            has ended (a range selector still sees it, an instant one does not).
    """
    opened = _opened(body)
    if isinstance(opened, Answer):
        return opened
    data, warnings = opened
    kind = data.resultType
    try:
        if kind == "scalar":
            elements, malformed = [_Element({}, _scalar(data.result))], 0
        elif kind == "vector":
            elements, malformed = _elements(data.result)
        else:
            return failed(Outcome.UNREADABLE, f"the query gives a {kind}; wanted is an instant vector or a scalar")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return failed(Outcome.UNREADABLE, f"{kind} cannot be read: {error}")
    series, rejected = _dated(elements) if is_dated else _plain(elements)
    return Answer(
        outcome=Outcome.ANSWERED,
        series=tuple(series),
        rejected=rejected + malformed,
        warnings=tuple(str(warning)[:_LONGEST_TEXT] for warning in warnings[:_MOST_WARNINGS]),
    )


def _elements(raw: msgspec.Raw) -> tuple[list[_Element], int]:
    """Return the elements that can be read and how many cannot: one malformed element costs only itself."""
    try:
        return _vector(raw), 0
    except (msgspec.ValidationError, UnicodeDecodeError):
        pass
    read, malformed = [], 0
    for piece in _raw_list(raw):
        try:
            read.append(_element(piece))
        except (msgspec.DecodeError, UnicodeDecodeError):
            malformed += 1
    return read, malformed


def _number(element: _Element) -> float | None:
    return None if element.value is None else _finite(element.value[1])


def _finite(text: str) -> float | None:
    """Return the number, None unless finite: NaN is also what Prometheus marks ended series with."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _plain(elements: Iterable[_Element]) -> tuple[list[Series], int]:
    found, rejected = [], 0
    for element in elements:
        value = _number(element)
        if value is None:
            rejected += 1
        else:
            found.append(Series(labels=element.metric, value=value))
    return found, rejected


def _dated(elements: Iterable[_Element]) -> tuple[list[Series], int]:
    values: list[tuple[dict[str, str], float, float]] = []
    stamps: dict[frozenset[tuple[str, str]], float] = {}
    rejected = 0
    for element in elements:
        part = element.metric.pop(_PART, "")
        number = _number(element)
        if number is None or element.value is None:
            rejected += 1
        elif part == _STAMP:
            stamps[frozenset(element.metric.items())] = number
        else:
            values.append((element.metric, number, element.value[0]))
    found = []
    for labels, value, evaluated_s in values:
        stamp_s = stamps.get(frozenset(labels.items()))
        if stamp_s is None:
            rejected += 1
        else:
            found.append(Series(labels=labels, value=value, age_s=max(0.0, evaluated_s - stamp_s), stamp_s=stamp_s))
    return found, rejected
