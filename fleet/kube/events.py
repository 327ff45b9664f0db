"""Events on pods and nodes (events.k8s.io/v1): said once, counted while they repeat, and never in the way.

The same thing said of the same pod is sent at most once a minute, as a series on the event that exists. Everything is
bounded: what is remembered, what is sent a second, how long a call takes. A failure is counted and forgotten.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from fleet.clock import Clock
from fleet.errors import ApiError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.patches import MERGE_PATCH
from fleet.node import Node
from fleet.pod import Pod

_log = logging.getLogger(__name__)

REPEAT_S = 60.0
MOST_REMEMBERED = 8192
RATE_PER_S = 25.0
BURST = 100.0
_CALL_S = 5.0
_LONGEST_NOTE = 1024


@dataclass(slots=True)
class EventStats:
    """Counts since the start, for metrics."""

    sent: int = 0
    repeated: int = 0
    dropped: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom an event is about, where that is neither a pod nor a node.

    Attributes:
        version: resourceVersion; "" = not known.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    version: str = ""
    api_version: str = "v1"

    @property
    def events_namespace(self) -> str:
        """Return where the event goes: those of nodes stand in `default`."""
        return self.namespace or "default"

    @property
    def reference(self) -> dict[str, str]:
        """Return the object reference that an event carries."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.version,
        }
        return {name: value for name, value in fields.items() if value}


def _subject(about: Pod | Node | Subject) -> Subject:
    if isinstance(about, Subject):
        return about
    if isinstance(about, Pod):
        return Subject(
            kind="Pod", namespace=about.namespace, name=about.name, uid=about.uid, version=about.resource_version
        )
    return Subject(kind="Node", namespace="", name=about.name, uid=about.uid, version="")


@dataclass(slots=True)
class _Said:
    name: str
    count: int
    sent_at_s: float


class EventRecorder:
    """Says things about pods and nodes. `record` never raises but for cancellation.

    Attributes:
        stats: Counts since the start.
    """

    def __init__(self, client: Client, clock: Clock, controller: str, instance: str | None = None) -> None:
        """Prepare.

        Args:
            client: Connected client.
            clock: For rates and time stamps.
            controller: Who speaks, such as berthmaster-planner.
            instance: Which of its processes; the pod's or the host's name by default.
        """
        self.stats = EventStats()
        self._client = client
        self._clock = clock
        self._controller = controller
        self._instance = instance or os.environ.get("POD_NAME") or socket.gethostname()
        self._said: OrderedDict[tuple[str, str, str], _Said] = OrderedDict()
        self._tokens = BURST
        self._refilled_at_s = clock.monotonic_s()

    async def record(
        self, about: Pod | Node | Subject, *, reason: str, note: str, is_warning: bool, action: str = "Planning"
    ) -> None:
        """Say something about a pod, a node or another object.

        Args:
            about: Whom it is about.
            reason: CamelCase word.
            note: Text for people, with the numbers.
            is_warning: Whether somebody may have to act.
            action: What was being done.
        """
        note = _cut(note)
        subject = _subject(about)
        key = (subject.uid, reason, note)
        now_s = self._clock.monotonic_s()
        said = self._said.get(key)
        if said is not None:
            said.count += 1
            self._said.move_to_end(key)
            if now_s - said.sent_at_s < REPEAT_S:
                self.stats.repeated += 1
                return
        if not self._take_token(now_s):
            self.stats.dropped += 1
            return
        if said is None:
            said = self._said[key] = _Said(self._name(subject, reason, note), 1, now_s)
            if len(self._said) > MOST_REMEMBERED:
                self._said.popitem(last=False)
        said.sent_at_s = now_s
        try:
            await self._send(subject, said, reason, note, "Warning" if is_warning else "Normal", action)
        except ApiError as error:
            self.stats.failed += 1
            _log.debug("event on %s not recorded: %s", subject.name, error)
        else:
            self.stats.sent += 1

    async def _send(self, subject: Subject, said: _Said, reason: str, note: str, kind: str, action: str) -> None:
        now = datetime.fromtimestamp(self._clock.now_s(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        if said.count > 1:
            series = {"series": {"count": said.count, "lastObservedTime": now}}
            try:
                await self._client.request(
                    "PATCH",
                    f"{paths.events(subject.events_namespace)}/{said.name}",
                    body=msgspec.json.encode(series),
                    content_type=MERGE_PATCH,
                    timeout_s=_CALL_S,
                    is_fenced=False,
                )
            except NotFound:
                pass  # the API keeps events for an hour: say it anew
            else:
                return
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": subject.events_namespace, "name": said.name},
            "eventTime": now,
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "action": action,
            "reason": reason,
            "type": kind,
            "note": note,
            "regarding": subject.reference,
        }
        await self._client.create(
            paths.events(subject.events_namespace), msgspec.json.encode(event), timeout_s=_CALL_S, is_fenced=False
        )

    def _name(self, subject: Subject, reason: str, note: str) -> str:
        digest = hashlib.sha256(f"{subject.uid}\n{reason}\n{note}\n{self._instance}\n{self._clock.now_s()}".encode())
        return f"{subject.name[:220]}.{digest.hexdigest()[:16]}"

    def _take_token(self, now_s: float) -> bool:
        self._tokens = min(BURST, self._tokens + (now_s - self._refilled_at_s) * RATE_PER_S)
        self._refilled_at_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def _cut(note: str) -> str:
    data = note.encode()
    return note if len(data) <= _LONGEST_NOTE else data[: _LONGEST_NOTE - 3].decode("utf-8", "ignore") + "…"
