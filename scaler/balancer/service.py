"""Wires the exporter: runtime socket, log socket, watch of the autoscalers, HTTP."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

from fleet.clock import Clock, SystemClock
from fleet.config import host_and_port
from fleet.errors import ConfigError
from fleet.http import TokenFile
from fleet.kube.client import Client
from fleet.kube.credentials import connection
from fleet.loop import together
from scaler.balancer.allowances import Allowances, watch
from scaler.balancer.exporter import Exporter
from scaler.balancer.logs import LogSocket
from scaler.balancer.server import Listener, application, server_tls
from scaler.balancer.socket import RuntimeSocket

DEFAULT_LISTEN = "127.0.0.1:8613"

_log = logging.getLogger(__name__)


async def run_exporter(
    *,
    runtime_socket: str,
    name: str = "haproxy",
    listen: str = DEFAULT_LISTEN,
    token_file: str = "",
    tls_cert_file: str = "",
    tls_key_file: str = "",
    log_socket: str = "",
    backends: Sequence[str] = (),
    balancers: int = 1,
    sets_limits: bool = True,
    kubeconfig: str | None = None,
    clock: Clock | None = None,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until cancelled.

    Args:
        runtime_socket: Path of HAProxy's `stats socket`, `level admin` if limits are to be set.
        name: Of this balancer, as `spec.signals.balancer.name` in the autoscalers says it.
        listen: HOST:PORT.
        token_file: Holds the bearer token that every question must show; needed anywhere but on loopback.
        tls_cert_file: Certificate to serve TLS with, with `tls_key_file`; "" = plain HTTP.
        tls_key_file: Its key.
        log_socket: Path of a datagram socket to make for HAProxy's log lines; "" = latencies by Little alone.
        backends: To report; none = all.
        balancers: How many balancers share the replicas; each gets its part of a replica's limit.
        sets_limits: Whether the autoscalers are watched for limits.
        kubeconfig: Path; None = KUBECONFIG, else the cluster this process runs in.
        clock: Time; the machine's own by default.
        started: Told the port once questions are answered.

    Raises:
        ConfigError: What was given contradicts itself, or a file cannot be read.
        OSError: The address cannot be listened on.
    """
    clock = clock or SystemClock()
    host, port = host_and_port(listen)
    problems = []
    if not token_file and not _is_loopback(host):
        problems.append(f"listening on {listen} needs a token file: only loopback does without")
    if bool(tls_cert_file) != bool(tls_key_file):
        problems.append("TLS needs a certificate and a key file")
    if balancers < 1:
        problems.append(f"balancers must be at least 1, got {balancers}")
    if problems:
        raise ConfigError(problems)
    token = TokenFile(token_file) if token_file else None
    if token is not None:
        token.read()
    tls = server_tls(tls_cert_file, tls_key_file) if tls_cert_file else None
    allowances = Allowances(name)
    exporter = Exporter(
        RuntimeSocket(runtime_socket),
        clock,
        allowances=allowances.by_backend,
        names=frozenset(backends),
        balancers=balancers,
    )
    app = application(
        samples=exporter.samples,
        registry=exporter.metrics.registry,
        not_ready=exporter.not_ready,
        token=token,
        refused=exporter.metrics.refused.inc,
    )
    tasks: dict[str, Coroutine[Any, Any, None]] = {}
    async with AsyncExitStack() as stack:
        if log_socket:
            await stack.enter_async_context(LogSocket(log_socket, exporter.book.add))
        if sets_limits:
            client = await stack.enter_async_context(
                Client(connection(kubeconfig, clock=clock), clock, user_agent="berthmaster-exporter")
            )
            tasks["watch"] = watch(client, clock, allowances).run()
        listener = await stack.enter_async_context(Listener(app, host, port, tls))
        _log.info("exporter listens", extra={"port": listener.port, "balancer": name})
        started(listener.port)
        await together({"readings": exporter.run(), **tasks})


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
