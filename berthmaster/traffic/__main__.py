"""`python -m berthmaster.traffic replica|load`: the parts of the traffic proof as processes."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import sys

import click

from berthmaster.traffic.arrivals import poisson, steps
from berthmaster.traffic.generator import run_load
from berthmaster.traffic.profiles import PROFILES
from berthmaster.traffic.replica import run_replica
from fleet.clock import SystemClock
from fleet.loop import run_process
from fleet.telemetry import configure_logging


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Replicas and load for `berthmaster demo` and the tests; everything stays on 127.0.0.1."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="0 = any free one.")
@click.option("--profile", type=click.Choice(sorted(PROFILES)), default="cpu", show_default=True)
@click.option("--start-delay-s", type=click.FloatRange(0), default=0.0, show_default=True, help="Time until Ready.")
@click.option("--seed", type=int, default=0, show_default=True)
def replica(host: str, port: int, profile: str, start_delay_s: float, seed: int) -> None:
    """Serve like a model; prints the port. SIGTERM finishes what is in progress."""
    configure_logging("WARNING")
    if not ipaddress.ip_address(host).is_loopback:
        raise click.BadParameter(f"{host} is not a loopback address", param_hint="--host")

    def started(found: int) -> None:
        click.echo(found)
        sys.stdout.flush()

    sys.exit(
        run_process(
            lambda: run_replica(
                PROFILES[profile], host=host, port=port, start_delay_s=start_delay_s, seed=seed, started=started
            )
        )
    )


@main.command()
@click.option("--url", required=True, help="Whole URL, with the endpoint as first part of its path.")
@click.option("--rate-rps", type=click.FloatRange(0, min_open=True), required=True)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), required=True)
@click.option("--step-rps", type=click.FloatRange(0), help="Rate from --step-at-s on.")
@click.option("--step-at-s", type=click.FloatRange(0), default=0.0)
@click.option("--timeout-s", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def load(
    url: str, rate_rps: float, seconds: float, step_rps: float | None, step_at_s: float, timeout_s: float, seed: int
) -> None:
    """Send an open-loop load and print what became of it as JSON."""
    levels = [(0.0, rate_rps)] if step_rps is None else [(0.0, rate_rps), (step_at_s, step_rps)]
    schedule = poisson(steps(*levels), until_s=seconds, most_rps=max(rps for _, rps in levels), seed=seed)
    tally = asyncio.run(run_load(url, schedule, SystemClock(), timeout_s=timeout_s))
    click.echo(
        json.dumps(
            {
                "due": tally.due,
                "answered": tally.answered,
                "lost": tally.lost,
                "unsent": tally.unsent,
                "late": tally.late,
                "latency_p50_s": tally.quantile_s(0.5),
                "latency_p99_s": tally.quantile_s(0.99),
            }
        )
    )


if __name__ == "__main__":
    main()
