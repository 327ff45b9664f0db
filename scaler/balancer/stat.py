"""HAProxy's `show stat` as values. Read by column name, since columns are added from version to version.

Source: HAProxy 2.8 management guide, section 9.1 "CSV format".
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fleet.errors import DecodeError
from scaler.balancer.values import ServerState

BACKEND = "BACKEND"
_HEADER = "# pxname,svname,"
_TAIL = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLine:
    """One server as the balancer counts it; counters since its start.

    Attributes:
        name: Of the slot.
        address: IP:PORT.
        state: What it does.
        in_flight: Now.
        queued: Waiting for it alone, now.
        sessions: Requests sent to it, repeated tries included.
        server_errors: Answers 5xx by the replica itself.
        aborted: Answers that it did not end, or never began on a connection used before: the client gets no status.
        faults: Answers that could not be had; one that the client learns of as 502 counts twice here (2.8).
        limit: Most in progress; 0 = no bound.
        weight: Share of traffic, 0..256, as configured or set.
    """

    name: str
    address: str
    state: ServerState
    in_flight: int
    queued: int
    sessions: int
    server_errors: int
    aborted: int
    faults: int
    limit: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendLine:
    """One backend; counters since the balancer's start.

    Attributes:
        name: Of the backend.
        in_progress: Requests that belong to it now: held, queued or at a server.
        queued: Waiting for any server, now.
        sessions: Requests that came.
        answers_5xx: Sent to clients, by servers or by the balancer.
        unreached: Of those, requests that reached no server in time: refused connections, time-outs in the queue.
        aborted: Answers that a server did not end: the client got no 5xx.
        servers: In the balancer's order.
    """

    name: str
    in_progress: int
    queued: int
    sessions: int
    answers_5xx: int
    unreached: int
    aborted: int
    servers: tuple[ServerLine, ...]


Gauges = Mapping[tuple[str, str], int]


def backends(text: str) -> dict[str, BackendLine]:
    """Return every backend of a whole `show stat` answer, with its servers.

    Raises:
        DecodeError: The answer was cut short, is no statistics table, or a number in it is none.
    """
    columns, lines = _columns(text)
    number = _numbers(columns)
    try:
        name, server, status, address = (columns[key] for key in ("pxname", "svname", "status", "addr"))
        effective = columns["weight"]
    except KeyError as error:
        raise DecodeError(f"show stat has no column {error}") from error
    weight = "uweight" if "uweight" in columns else "weight"
    servers: dict[str, list[ServerLine]] = {}
    totals: dict[str, list[str]] = {}
    for row in _rows(lines, len(columns) - 1):
        if row[server] == BACKEND:
            totals[row[name]] = row
        elif row[server] != "FRONTEND":
            servers.setdefault(row[name], []).append(
                ServerLine(
                    name=row[server],
                    address=row[address],
                    state=state_of(row[status], row[effective]),
                    in_flight=number(row, "scur"),
                    queued=number(row, "qcur"),
                    sessions=number(row, "stot"),
                    server_errors=number(row, "hrsp_5xx"),
                    aborted=number(row, "srv_abrt"),
                    faults=number(row, "eresp"),
                    limit=number(row, "slim"),
                    weight=number(row, weight) or 1,
                )
            )
    return {
        backend: BackendLine(
            name=backend,
            in_progress=number(row, "scur"),
            queued=number(row, "qcur"),
            sessions=number(row, "stot"),
            answers_5xx=number(row, "hrsp_5xx"),
            unreached=number(row, "econ"),
            aborted=number(row, "srv_abrt"),
            servers=tuple(servers.get(backend, ())),
        )
        for backend, row in totals.items()
    }


def gauges(text: str) -> Gauges:
    """Return requests in progress by (backend, server) alone: the cheap reading between two whole ones.

    Raises:
        DecodeError: The answer was cut short or is no statistics table.
    """
    columns, lines = _columns(text)
    found = {}
    try:
        place = columns["scur"]
        for line in lines:
            if line:
                row = line.split(",", place + 1)
                found[row[0], row[1]] = _count(row[place])
    except (KeyError, ValueError, IndexError) as error:
        raise DecodeError(f"show stat: requests in progress cannot be read: {error}") from error
    return found


def state_of(status: str, weight: str = "1") -> ServerState:
    """Return what a server does from its status text (`UP 1/3`, `no check`, `MAINT (via ..)`) and effective weight."""
    if status.startswith("MAINT"):
        return ServerState.EMPTY
    if status.startswith(("DRAIN", "NOLB")):
        return ServerState.DRAINING
    if status.startswith(("UP", "no check")):
        return ServerState.DRAINING if weight == "0" else ServerState.SERVING
    return ServerState.DOWN


def _columns(text: str) -> tuple[dict[str, int], list[str]]:
    if not text.startswith(_HEADER) or not text.endswith(_TAIL):
        raise DecodeError(f"show stat is cut short or none: {text[-80:]!r}")
    head, *lines = text.splitlines()
    return {name: place for place, name in enumerate(head.removeprefix("# ").split(","))}, lines


def _rows(lines: list[str], fewest: int) -> Iterator[list[str]]:
    for line in lines:
        if not line:
            continue
        # Texts of health checks may hold commas and are quoted then; all other lines take the fast way.
        try:
            row = next(csv.reader([line])) if '"' in line else line.split(",")
        except csv.Error as error:
            raise DecodeError(f"show stat: {error}: {line[:80]!r}") from error
        if len(row) < fewest:
            raise DecodeError(f"show stat: a line has {len(row)} of {fewest} columns: {line[:80]!r}")
        yield row


def _count(text: str) -> int:
    """Return a number as HAProxy counts, in 64 bits from 0 on.

    Raises:
        ValueError: It is none.
    """
    value = int(text)
    if not 0 <= value < 2**64:
        raise ValueError("not a count of 64 bits")
    return value


def _numbers(columns: Mapping[str, int]) -> Callable[[list[str], str], int]:
    def number(row: list[str], name: str) -> int:
        text = row[columns[name]] if name in columns else ""
        try:
            return _count(text or "0")
        except ValueError as error:
            raise DecodeError(f"show stat: {name} of {row[0]}/{row[1]} is {text[:40]!r}") from error

    return number
