"""The sources of load of one term of leadership, as the sources file says now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from fleet.clock import Clock
from fleet.errors import ConfigError
from fleet.http import Http, TokenFile, tls_context
from fleet.loop import Rhythm, every
from fleet.prom import Prometheus
from scaler.config import Sources, SourceSettings, SourcesFile
from scaler.controller.meters import Meters
from scaler.controller.ports import LoadSource
from scaler.signals.balancer import BalancerSource

log = logging.getLogger(__name__)

_DEFAULT = "default"
_AGENT = "berthmaster-scaler"
# Samples older than three scrapes of 15 s are no load of now.
_LOOK_BACK_S = 45.0
# A ConfigMap takes up to a minute to arrive as a file: looking more often would not make it faster.
_LOOK = Rhythm(period_s=10.0, jitter_ratio=0.1, longest_backoff_s=10.0)


@dataclass(slots=True)
class _Open:
    given: SourceSettings
    is_default: bool
    stack: AsyncExitStack


class Supply:
    """Opens what the file names, and what a changed file names anew; what did not change goes on undisturbed.

    A file that cannot be read, or that is wrong, changes nothing and is told. Use as an async context manager.

    Attributes:
        balancers: By name; changes with the file.
        meters: Prometheus servers by name; likewise.
    """

    def __init__(self, file: SourcesFile, clock: Clock, failed: Callable[[], None] = lambda: None) -> None:
        """Remember what to follow.

        Args:
            file: Read already once: what it said then holds until it says something else that is valid.
            clock: Time.
            failed: Told of each change that could not be taken, to count it.
        """
        self.balancers: dict[str, LoadSource] = {}
        self.meters: dict[str, Meters] = {}
        self._file = file
        self._clock = clock
        self._failed = failed
        self._open: dict[tuple[str, str], _Open] = {}
        self._retired: list[AsyncExitStack] = []
        self._broken: dict[tuple[str, str], str] = {}

    async def __aenter__(self) -> Self:
        self._read()
        await self._follow(self._file.sources)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._open.values():
            await one.stack.aclose()
        await self._close_retired()
        self._open.clear()

    async def run(self) -> None:
        """Follow the file until cancelled."""
        await every(_LOOK, self.turn, self._clock, name="the sources file")

    async def turn(self) -> None:
        """Look once whether the file says something else."""
        await self._close_retired()
        if self._read() or self._broken:
            await self._follow(self._file.sources)

    def _read(self) -> bool:
        try:
            return self._file.renew()
        except ConfigError as error:
            self._failed()
            log.error("the sources stay as they were: %s", error)
            return False

    async def _follow(self, sources: Sources) -> None:
        only = len(sources.prometheus) == 1
        wanted: Mapping[tuple[str, str], tuple[SourceSettings, bool]] = {
            **{("balancer", name): (given, False) for name, given in sources.balancers.items()},
            **{("prometheus", name): (given, only or name == _DEFAULT) for name, given in sources.prometheus.items()},
        }
        for what in self._open.keys() - wanted.keys():
            self._retire(what)
            (self.balancers if what[0] == "balancer" else self.meters).pop(what[1])
            log.info("%s %s is asked no more", *what)
        broken: dict[tuple[str, str], str] = {}
        for what, (given, is_default) in wanted.items():
            one = self._open.get(what)
            if one is not None and (one.given, one.is_default) == (given, is_default):
                continue
            try:
                opened = await self._opened(what, given, is_default=is_default)
            except ConfigError as error:
                broken[what] = str(error)
                if self._broken.get(what) != broken[what]:
                    self._failed()
                    log.error("%s %s cannot be asked as the sources file says: %s", *what, error)
                continue
            if one is not None:
                self._retire(what)
            self._open[what] = opened
        self._broken = broken

    def _retire(self, what: tuple[str, str]) -> None:
        """Close one a turn later: whoever asks it now stops within a second."""
        self._retired.append(self._open.pop(what).stack)

    async def _opened(self, what: tuple[str, str], given: SourceSettings, *, is_default: bool) -> _Open:
        tls = tls_context(given.ca_file, given.cert_file, given.key_file) if given.ca_file or given.cert_file else None
        stack = AsyncExitStack()
        http = await stack.enter_async_context(Http(tls=tls, user_agent=_AGENT))
        kind, name = what
        if kind == "balancer":
            token = TokenFile(given.token_file) if given.token_file else None
            source = BalancerSource(name, given.urls, http, self._clock, token=token)
            stack.push_async_callback(source.close)
            self.balancers[name] = source
        else:
            prometheus = Prometheus(given.urls[0], http, token_file=given.token_file, lookback_s=_LOOK_BACK_S)
            self.meters[name] = Meters(prometheus, self._clock, is_default=is_default)
        return _Open(given=given, is_default=is_default, stack=stack)

    async def _close_retired(self) -> None:
        retired, self._retired = self._retired, []
        for stack in retired:
            await stack.aclose()
