"""`python -m scaler controller|exporter|observer`: the processes of the scaler, wiring only."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from fleet.errors import BerthmasterError
from fleet.loop import run_process
from fleet.telemetry import configure_logging

SETTINGS_PREFIX = "BERTHMASTER_SCALER"

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
@_kubeconfig
@click.option("--listen", default="127.0.0.1:8614", show_default=True, help="HOST:PORT for probes, metrics, history.")
@click.option(
    "--sources", type=click.Path(dir_okay=False), help="YAML file that names balancers and Prometheus servers."
)
@click.option("--history-token", type=click.Path(dir_okay=False), help="File with the token that the history asks for.")
@_log_level
def controller(
    kubeconfig: str | None, listen: str, sources: str | None, history_token: str | None, log_level: str
) -> None:
    """Set replicas and learn what each may hold, for every ConcurrencyAutoscaler; one of several replicas leads.

    Settings can come from the environment too: BERTHMASTER_SCALER_SOURCES=/etc/berthmaster/sources.yaml,
    BERTHMASTER_SCALER_SETS_DELETION_COST=false and so on.
    """
    from scaler.controller.service import run_controller

    flags = {"sources": sources, "history_token": history_token}
    _run(
        log_level,
        lambda: run_controller(
            kubeconfig=kubeconfig, listen=listen, environment=dict(os.environ), prefix=SETTINGS_PREFIX, flags=flags
        ),
    )


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


@main.command()
@click.option("--host", default="", help="To listen on; every interface by default, for Prometheus to reach.")
@click.option("--port", default=9400, show_default=True, help="To listen on; DCGM's exporter uses the same.")
@click.option("--hostname", default="", help="Of the node, for the label Hostname; this machine's by default.")
@_log_level
def observer(host: str, port: int, hostname: str, log_level: str) -> None:
    """Show this node's GPUs under the names of DCGM's exporter, where no DCGM runs."""
    from scaler.observer.service import run_observer

    _run(log_level, lambda: run_observer(host=host, port=port, hostname=hostname or socket.gethostname()))


def _run(log_level: str, main_of: Callable[[], Coroutine[Any, Any, None]]) -> None:
    configure_logging(log_level)
    sys.exit(run_process(main_of))


if __name__ == "__main__":
    try:
        main()
    except BerthmasterError as error:
        click.echo(f"scaler: {error}", err=True)
        sys.exit(1)
