"""The HTTP client of the Kubernetes API: JSON bytes in, JSON bytes out, every call with a time-out.

Objects are never decoded here. Outcomes that callers act on have their own exception (fleet.errors); rate limits and
passing faults are retried inside the time-out where a second try is safe.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from yarl import URL

from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError, NotLeading
from fleet.kube import paths
from fleet.kube.answers import Stream, error_from, transport_errors
from fleet.kube.credentials import Access, Connection
from fleet.kube.patches import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

JSON = "application/json"
READ_TIMEOUT_S = 30.0
WRITE_TIMEOUT_S = 8.0
CONNECT_TIMEOUT_S = 5.0

_RETRY_FIRST_S = 0.1
_RETRY_MOST_S = 2.0
_MOST_TRIES = 5
_PASSING = frozenset({429, 500, 502, 503, 504})


class Client:
    """One session to one API server. Use as an async context manager.

    Attributes:
        write_deadline_s: Returns the monotonic time by which every write must have ended (the lease), None = no lease
            to respect. A write that could end later is not started but raises NotLeading.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        *,
        user_agent: str = labels.FIELD_MANAGER,
        most_connections: int = 64,
        write_deadline_s: Callable[[], float] | None = None,
        seed: int | None = None,
    ) -> None:
        self.write_deadline_s = write_deadline_s
        self._connection = connection
        self._clock = clock
        self._user_agent = user_agent
        self._most_connections = most_connections
        self._random = random.Random(seed)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._most_connections, keepalive_timeout=60, ttl_dns_cache=30)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._user_agent, "Accept": JSON, "Accept-Encoding": "gzip"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
        is_repeatable: bool | None = None,
        is_fenced: bool | None = None,
    ) -> bytes:
        """Return the body of a successful answer.

        Args:
            method: HTTP method.
            path: Absolute API path, its parts already quoted.
            params: Query parameters.
            body: JSON, already encoded.
            content_type: Of the body; a patch's kind stands here.
            timeout_s: For the whole call with all its tries and waits; 30 s for a read, 8 s for a write by default.
            is_repeatable: Whether a second try does no harm when the first may have got through. By default reads
                only. A call that was refused as one too many (429), or never sent, is repeated in any case but an
                eviction's, where 429 is an answer: a disruption budget says no.
            is_fenced: Whether the lease must outlast the call; by default every write.

        Raises:
            Conflict, NotFound, Invalid, Gone: 409, 404, 422, 410.
            NotLeading: A fenced write that could outlast the lease; nothing was sent.
            ApiError: Any other error status, or 0 where no answer came.
        """
        is_read = method == "GET"
        budget_s = timeout_s or (READ_TIMEOUT_S if is_read else WRITE_TIMEOUT_S)
        deadline_s = self._clock.monotonic_s() + budget_s
        if not is_read:
            # The server gives up too, so that a write cannot land long after we stopped waiting for it.
            params = {**(params or {}), "timeout": f"{round(budget_s * 950)}ms"}
            if is_fenced is not False:
                self._check_lease(method, path, deadline_s)
        url = self._url(path, params)
        repeatable = is_read if is_repeatable is None else is_repeatable
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(method, url, body, content_type, deadline_s)
            except ApiError as error:
                wait_s = self._wait_s(error, tries, repeatable, is_eviction=path.endswith("/eviction"))
                if wait_s is None or self._clock.monotonic_s() + wait_s >= deadline_s:
                    raise
            await self._clock.sleep(wait_s)

    async def _once(self, method: str, url: URL, body: bytes | None, content_type: str, deadline_s: float) -> bytes:
        left_s = max(0.05, deadline_s - self._clock.monotonic_s())
        limits = aiohttp.ClientTimeout(total=left_s, sock_connect=CONNECT_TIMEOUT_S)
        with transport_errors(method, url):
            async with await self._open(method, url, body, content_type, limits) as answer:
                return await answer.read()

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Stream]:
        """Open a GET whose body is read piece by piece (a long list, a watch); the caller owns its time-outs.

        Raises:
            ApiError: As in `request`.
        """
        url = self._url(path, params)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        with transport_errors("GET", url):
            answer = await self._open("GET", url, None, JSON, limits, unpack=False)
        async with answer:
            yield Stream(answer)

    async def _open(
        self,
        method: str,
        url: URL,
        body: bytes | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
        *,
        unpack: bool = True,
    ) -> aiohttp.ClientResponse:
        access = await self._connection.access()
        answer = await self._send(access, method, url, body, content_type, limits, unpack)
        if answer.status == 401 and await self._connection.renew(access):
            answer.release()
            access = await self._connection.access()
            answer = await self._send(access, method, url, body, content_type, limits, unpack)
        if answer.status >= 400:
            async with answer:
                raise await error_from(answer)
        return answer

    async def _send(
        self,
        access: Access,
        method: str,
        url: URL,
        body: bytes | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
        unpack: bool,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise ApiError(0, "NotSent", "the client is closed")
        headers = {"Content-Type": content_type} if body is not None else {}
        if access.authorization:
            headers["Authorization"] = access.authorization
        return await self._session.request(
            method,
            url,
            data=body,
            headers=headers,
            ssl=access.tls if access.tls is not None else True,
            server_hostname=access.server_name,
            proxy=access.proxy,
            timeout=limits,
            allow_redirects=False,
            auto_decompress=unpack,
        )

    def _url(self, path: str, params: Mapping[str, str] | None) -> URL:
        url = URL(self._connection.base_url + path, encoded=True)
        return url.with_query(params) if params else url

    def _check_lease(self, method: str, path: str, deadline_s: float) -> None:
        if self.write_deadline_s is not None and deadline_s > self.write_deadline_s():
            raise NotLeading(0, "NotLeading", f"{method} {path} could end after the lease")

    def _wait_s(self, error: ApiError, tries: int, repeatable: bool, *, is_eviction: bool) -> float | None:
        """Return how long to wait before the next try, None where there is to be none."""
        if tries >= _MOST_TRIES:
            return None
        never_got_in = (error.status == 429 and not is_eviction) or error.reason == "NotSent"
        if not never_got_in and not (repeatable and (error.status in _PASSING or error.status == 0)):
            return None
        backoff_s = min(_RETRY_MOST_S, _RETRY_FIRST_S * 2.0 ** (tries - 1))
        return max(error.retry_after_s, backoff_s * self._random.uniform(0.5, 1.0))

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout_s: float | None = None) -> bytes:
        """Return one object, or a list, as JSON."""
        return await self.request("GET", path, params=params, timeout_s=timeout_s)

    async def create(self, path: str, body: bytes, *, timeout_s: float | None = None, is_fenced: bool = True) -> bytes:
        """Create the object in the collection at `path`; a name that exists is a Conflict."""
        return await self.request("POST", path, body=body, timeout_s=timeout_s, is_fenced=is_fenced)

    async def replace(self, path: str, body: bytes, *, timeout_s: float | None = None, is_fenced: bool = True) -> bytes:
        """Replace the object; with a resourceVersion in it, only that version (else Conflict)."""
        return await self.request("PUT", path, body=body, timeout_s=timeout_s, is_fenced=is_fenced)

    async def json_patch(self, path: str, body: bytes, *, timeout_s: float | None = None) -> bytes:
        """Apply a JSON patch; a test that does not hold is Invalid. Not repeated when the answer is lost: re-read.

        The server is told not to look for unknown fields: it would decode everything strictly for warnings that nobody
        reads.
        """
        params = {"fieldManager": labels.FIELD_MANAGER, "fieldValidation": "Ignore"}
        return await self.request("PATCH", path, params=params, body=body, content_type=JSON_PATCH, timeout_s=timeout_s)

    async def merge_patch(
        self, path: str, body: bytes, *, strategic: bool = False, timeout_s: float | None = None
    ) -> bytes:
        """Apply a merge patch; `strategic` merges lists by their keys (built-in kinds only)."""
        return await self.request(
            "PATCH",
            path,
            params={"fieldManager": labels.FIELD_MANAGER},
            body=body,
            content_type=STRATEGIC_PATCH if strategic else MERGE_PATCH,
            timeout_s=timeout_s,
            is_repeatable=True,
        )

    async def apply(self, path: str, body: bytes, *, force: bool = True, timeout_s: float | None = None) -> bytes:
        """Server-side apply under our field manager; `force` takes over fields that others own, else Conflict."""
        return await self.request(
            "PATCH",
            path,
            params={"fieldManager": labels.FIELD_MANAGER, "force": "true" if force else "false"},
            body=body,
            content_type=APPLY_PATCH,
            timeout_s=timeout_s,
            is_repeatable=True,
        )

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_s: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete the object, only while it still has this uid and version (else Conflict).

        `grace_s` of a pod's own grace period; 0 = its processes are known to have ended.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {name: value for name, value in wanted.items() if value}
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        await self.request(
            "DELETE", path, body=msgspec.json.encode(options), timeout_s=timeout_s, is_repeatable=bool(uid)
        )

    async def evict(self, namespace: str, name: str, *, uid: str | None = None, timeout_s: float | None = None) -> None:
        """Ask for the pod to go, as disruption budgets allow; ApiError 429 while they do not."""
        eviction: dict[str, object] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
        }
        if uid:
            eviction["deleteOptions"] = {"preconditions": {"uid": uid}}
        await self.create(paths.pod(namespace, name, "eviction"), msgspec.json.encode(eviction), timeout_s=timeout_s)
