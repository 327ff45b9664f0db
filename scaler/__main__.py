"""`python -m scaler exporter`: the processes of the scaler, wiring only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from fleet.loop import run_process
from fleet.telemetry import configure_logging

_kubeconfig = click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig; $KUBECONFIG or the pod's account by default."
)
_log_level = click.option(
    "--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"])
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The scaler's processes. People use `berthmaster`; these run in pods, or beside a balancer."""


@main.command()
@click.option("--socket", "runtime_socket", required=True, help="HAProxy's runtime socket (level admin).")
@click.option("--name", default="haproxy", show_default=True, help="As signals.balancer.name in the autoscalers.")
@click.option("--listen", default="127.0.0.1:8613", show_default=True, help="HOST:PORT; beyond loopback with a token.")
@click.option(
    "--token-file", default="", help="Bearer token that every question must show; read again when it changes."
)
@click.option("--tls-cert-file", default="", help="Serve TLS with this certificate.")
@click.option("--tls-key-file", default="", help="Its key.")
@click.option("--log-socket", default="", help="Datagram socket to make for HAProxy's log lines: latency percentiles.")
@click.option("--backend", "backends", multiple=True, help="To report; may be repeated. All by default.")
@click.option("--balancers", default=1, show_default=True, help="How many balancers share the same replicas.")
@click.option("--limits/--no-limits", "sets_limits", default=True, help="Set replicas' limits from the autoscalers.")
@_kubeconfig
@_log_level
def exporter(log_level: str, **options: Any) -> None:
    """Read HAProxy beside this process every 100 ms, serve a sample a second, set what each replica may hold."""
    from scaler.balancer.service import run_exporter

    _run(log_level, lambda: run_exporter(**options))


def _run(log_level: str, main_of: Callable[[], Coroutine[Any, Any, None]]) -> None:
    configure_logging(log_level)
    sys.exit(run_process(main_of))


if __name__ == "__main__":
    main()
