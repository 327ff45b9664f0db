"""What the second act shows while it runs and when it ends."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from berthmaster.demo.scaling import KNEE, Moment, Outcome

_WIDTH = 40


def picture(moment: Moment) -> RenderableType:
    """Return the live picture: load, both axes with their reasons, and what became of the requests."""
    status, tally = moment.autoscaler.status, moment.tally
    load, learnt, decision = status.load, status.target, status.last_decision
    table = Table.grid(padding=(0, 1))
    table.add_row("load", f"{moment.rate_rps:.0f} requests/s", Text(moment.about, style="dim"))
    table.add_row(
        "in progress",
        f"{_number(load.in_flight)}, {_number(load.queued)} waiting",
        Text(f"{tally.due:,} requests sent"),
    )
    ready, desired = status.ready_replicas or 0, status.desired_replicas or 0
    bar = ProgressBar(total=max(1, desired, ready), completed=ready, width=_WIDTH)
    table.add_row("replicas", f"{ready} of {desired}", bar)
    table.add_row("", "", Text(decision.message if decision else "", style="dim"))
    if learnt is not None:
        bound = f"{_number(learnt.concurrency)} wanted, {_number(learnt.limit)} at most"
        table.add_row("per replica", bound, Text(learnt.message or learnt.reason, style="dim"))
    return Group(Text(f"{moment.elapsed_s:4.0f} s", style="bold"), table)


def line(moment: Moment) -> str:
    """Return the same in one line, where there is no terminal."""
    status = moment.autoscaler.status
    learnt, decision = status.target, status.last_decision
    return (
        f"{moment.elapsed_s:4.0f} s: {moment.rate_rps:.0f} requests/s, {moment.serving} serving of "
        f"{status.desired_replicas or 0} wanted ({decision.reason if decision else 'no decision yet'}), "
        f"{_number(learnt.concurrency if learnt else None)} per replica, {_number(status.load.queued)} waiting"
    )


def closing_table(outcome: Outcome) -> RenderableType:
    """Return the closing table."""
    tally, woken = outcome.tally, outcome.woken
    table = Table(title="One endpoint under real traffic", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("requests", f"{tally.due + woken.due:,} sent, {outcome.lost} lost")
    p50, p99 = tally.quantile_s(0.5), tally.quantile_s(0.99)
    late = "-" if outcome.late_ratio is None else f"{outcome.late_ratio:.2%}"
    table.add_row("latency", f"p50 {_seconds(p50)}, p99 {_seconds(p99)}, {late} over 2 s")
    table.add_row(
        "replicas", f"{outcome.most_serving} at most; the last came {_seconds(outcome.step_s)} after the step"
    )
    table.add_row(
        "per replica",
        f"learnt {_number(outcome.learnt)} (the knee is {KNEE}); aimed at {outcome.first_target:g} at first, "
        f"{_number(outcome.target)} at the end",
    )
    table.add_row("asleep", f"{_seconds(outcome.asleep_s)} after the last request")
    table.add_row("woken", f"{woken.good} of {woken.due} held requests answered within {_seconds(outcome.woken_s)}")
    return table


def document(outcome: Outcome) -> dict[str, Any]:
    """Return the same as JSON."""
    tally, woken = outcome.tally, outcome.woken
    return {
        "requests": tally.due,
        "answered": {str(status): count for status, count in sorted(tally.answered.items())},
        "lost": outcome.lost,
        "sent_late_by_this_machine": tally.late,
        "latency_s": {"p50": tally.quantile_s(0.5), "p99": tally.quantile_s(0.99)},
        "late_ratio": outcome.late_ratio,
        "most_replicas": outcome.most_serving,
        "step_absorbed_s": outcome.step_s,
        "knee": KNEE,
        "learnt": outcome.learnt,
        "target": {"first": outcome.first_target, "last": outcome.target},
        "asleep_s": outcome.asleep_s,
        "woken": {"sent": woken.due, "answered": woken.good, "last_answer_s": outcome.woken_s},
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}".removesuffix(".0")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"
