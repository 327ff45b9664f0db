"""PromQL for one value per pod, for all pods in one query, whatever labels a scrape has added."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.prom_answer import dated

# Who a series is about, best name first. A scrape without `honor_labels` renames what an exporter says to exported_*
# and gives its own pod as `pod`; Prometheus' older example configuration says kubernetes_*.
IDENTITIES = (
    ("exported_namespace", "exported_pod"),
    ("namespace", "pod"),
    ("kubernetes_namespace", "kubernetes_pod_name"),
)
_IDS = ", ".join(label for pair in IDENTITIES for label in pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to a reading: PromQL of the value and of its sample's stamp, both one element per pod."""

    value: str
    stamp: str


def query(*choices: Choice) -> str:
    """Return one query that takes, pod by pod, the first choice that has a value."""
    return dated(
        f"({' or '.join(choice.value for choice in choices)})", f"({' or '.join(choice.stamp for choice in choices)})"
    )


def fullest(expression: str) -> str:
    """Return the largest value of each pod: identity is the pod, so that a series scraped twice counts once."""
    return f"max by ({_IDS}) ({expression})"


def once(expression: str, parts: str) -> str:
    """Return one value per pod and part (a container, a device, a model): the largest, not the sum, of duplicates."""
    return f"max by ({_IDS}, {parts}) ({expression})"


def total(expression: str, parts: str) -> str:
    """Return the sum over the parts of each pod, duplicates counted once."""
    return f"sum by ({_IDS}) ({once(expression, parts)})"


def stamp(selector: str) -> str:
    """Return when each pod's newest sample of a bare selector was taken; of anything else PromQL knows no stamp."""
    return fullest(f"timestamp({selector})")


def named(expression: str) -> str:
    """Return series under their own names again where a scrape has renamed them: needed to join two exporters."""
    for label in ("namespace", "pod", "container"):
        expression = f'label_replace({expression}, "{label}", "$1", "exported_{label}", "(.+)")'
    return expression


def rate(selector: str) -> str:
    """Return the slope between the last two scrapes, counter resets mended: right for every scrape interval."""
    return f"irate({selector}[5m])"
