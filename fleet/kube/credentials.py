"""Where the API server is and how to prove who we are: kubeconfig, exec plugins, token files, in-cluster.

The `kubernetes` package reads the configuration. It is imported only then and without its object model: 19 MB, which
stay even if the modules are dropped afterwards (measured). This module turns the result into an SSL context and a
header, and renews it: before a token expires, every minute where a token lies in a file that may be rotated, and after
a 401. Secrets appear in no repr, log line or error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from fleet.clock import Clock, SystemClock
from fleet.errors import ConfigError

_log = logging.getLogger(__name__)

_FILE_TOKEN_RENEWAL_S = 60.0
_EARLIEST_RENEWAL_S = 5.0
_EXPIRY_MARGIN_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one request needs.

    Attributes:
        base_url: Scheme, host and port, without a trailing slash.
        tls: SSL context; None for plain http.
        authorization: Value of the Authorization header; "" where a client certificate or nothing is used.
        server_name: Name to check the certificate against, where it differs from the host.
        proxy: URL of the proxy, None = direct.
        expires_at_s: When the token expires (epoch); None = unknown or never.
        is_from_file: Whether the token lies in a file that may be rotated.
    """

    base_url: str
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    authorization: str = field(default="", repr=False)
    server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    expires_at_s: float | None = None
    is_from_file: bool = False


class Connection:
    """The current access, renewed as needed; one for all clients of a process."""

    def __init__(self, load: Callable[[], Access], clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._lock = asyncio.Lock()
        self._access = load()
        self._due_at_s = self._next_renewal_s(self._access)

    def __repr__(self) -> str:
        return f"Connection({self._access.base_url})"

    @property
    def base_url(self) -> str:
        """Return scheme, host and port of the API server."""
        return self._access.base_url

    async def access(self) -> Access:
        """Return a valid access, renewing it first where it is due. A failed renewal keeps the old one."""
        if self._clock.monotonic_s() >= self._due_at_s:
            await self.renew(self._access)
        return self._access

    async def renew(self, refused: Access) -> bool:
        """Load the credentials again unless that has happened since `refused` was handed out.

        Returns:
            True if there is now another access than the refused one.
        """
        async with self._lock:
            if self._access is refused:
                try:
                    self._access = await asyncio.to_thread(self._load)
                except ConfigError as error:
                    _log.warning("credentials not renewed, the old ones stay in use: %s", error)
                    self._due_at_s = self._clock.monotonic_s() + _EARLIEST_RENEWAL_S
                else:
                    self._due_at_s = self._next_renewal_s(self._access)
            return self._access is not refused

    def _next_renewal_s(self, access: Access) -> float:
        now_s = self._clock.monotonic_s()
        if access.expires_at_s is not None:
            left_s = access.expires_at_s - self._clock.now_s()
            return now_s + max(_EARLIEST_RENEWAL_S, left_s - min(_EXPIRY_MARGIN_S, left_s / 5))
        return now_s + _FILE_TOKEN_RENEWAL_S if access.is_from_file else float("inf")


def connection(kubeconfig: str | None = None, context: str | None = None, clock: Clock | None = None) -> Connection:
    """Return the connection to the API server: kubeconfig, else $KUBECONFIG, else ~/.kube/config, else in-cluster.

    Args:
        kubeconfig: Path, or several joined as in $KUBECONFIG.
        context: Context to use instead of the current one; needs a kubeconfig.
        clock: For renewals; the system's unless a test says otherwise.

    Raises:
        ConfigError: No configuration, or one that cannot be used; the message carries no secret.
    """
    paths = kubeconfig or os.environ.get("KUBECONFIG") or _default_path()
    if paths is None and context is not None:
        raise ConfigError([f"context {context!r} asked for, but there is no kubeconfig"])
    load = _in_cluster if paths is None else lambda: _from_kubeconfig(paths, context)
    return Connection(load, clock or SystemClock())


def _default_path() -> str | None:
    path = os.path.expanduser("~/.kube/config")
    return path if os.path.exists(path) else None


def _from_kubeconfig(paths: str, context: str | None) -> Access:
    kube_config: Any = import_module("kubernetes.config.kube_config")
    found: Any = SimpleNamespace(api_key={})
    with tempfile.TemporaryDirectory(prefix="berthmaster-") as private:
        try:
            merged = kube_config.KubeConfigMerger(paths).config
            if merged is None:
                raise ConfigError(["no such file"])
            loader = kube_config.KubeConfigLoader(merged, active_context=context, temp_file_path=private)
            loader.load_and_set(found)
            user = _user_of(merged, loader.current_context)
            if "exec" in user and not found.api_key and not getattr(found, "cert_file", None):
                # The package logs why and goes on without credentials.
                raise ConfigError(["its exec plugin gave no credentials; the log says why"])
            return _access(
                found,
                expires_at_s=_epoch_s(getattr(loader, "expiry", None)),
                is_from_file="tokenFile" in user and "token" not in user,
            )
        except ConfigError as error:
            raise ConfigError([f"kubeconfig {paths}: {problem}" for problem in error.problems]) from None
        except Exception as error:
            # Broad on purpose: the package answers a malformed file with whatever its code runs into.
            raise ConfigError([f"kubeconfig {paths}: {_without_secrets(error)}"]) from None


def _user_of(merged: Any, current: dict[str, Any]) -> dict[str, Any]:
    name = current["context"].get("user")
    for user in merged.value.get("users") or ():
        value = getattr(user, "value", user)
        if value.get("name") == name:
            return value.get("user") or {}
    return {}


def _in_cluster() -> Access:
    config: Any = import_module("kubernetes.config")
    found: Any = SimpleNamespace(api_key={})
    try:
        config.load_incluster_config(client_configuration=found)
        return _access(found, expires_at_s=None, is_from_file=True)
    except (config.ConfigException, OSError) as error:
        raise ConfigError([f"no kubeconfig, and not inside a cluster: {_without_secrets(error)}"]) from None


def _access(found: Any, *, expires_at_s: float | None, is_from_file: bool) -> Access:
    base_url = getattr(found, "host", None)
    if not base_url:
        raise ConfigError(["the cluster's entry names no server"])
    return Access(
        base_url=base_url,
        tls=_tls(found) if base_url.startswith("https:") else None,
        authorization=_header(found.api_key.get("BearerToken", "")),
        server_name=getattr(found, "tls_server_name", None),
        proxy=getattr(found, "proxy", None),
        expires_at_s=expires_at_s,
        is_from_file=is_from_file,
    )


def _header(token: str) -> str:
    scheme, _, rest = token.strip().partition(" ")
    if not rest:
        return token.strip()
    return f"{scheme.capitalize()} {rest.strip()}"


def _tls(found: Any) -> ssl.SSLContext:
    tls = ssl.create_default_context(cafile=getattr(found, "ssl_ca_cert", None))
    if not getattr(found, "verify_ssl", True):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate = getattr(found, "cert_file", None)
    if certificate:
        tls.load_cert_chain(certificate, getattr(found, "key_file", None))
    return tls


def _epoch_s(expiry: Any) -> float | None:
    return None if expiry is None else float(expiry.timestamp())


def _without_secrets(error: Exception) -> str:
    """Return the message up to where the package starts to print parts of the file itself."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"not YAML, line {mark.line + 1}"
    return f"{type(error).__name__}: {str(error).split('{', 1)[0][:300]}"
