"""What install.md and operate.md name exists: reasons, metrics, settings, labels, files, commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from binpack.config import PlannerSettings
from binpack.extender import Outcome
from fleet import labels
from fleet.config import read
from fleet.plan import Reason, SolveStatus
from scaler.__main__ import SETTINGS_PREFIX as SCALER_PREFIX
from scaler.config import ScalerSettings
from scaler.decision import Reason as ScalingReason
from tests.support.metrics import registries
from warmpool.__main__ import SETTINGS_PREFIX as POOL_PREFIX
from warmpool.config import WarmPoolSettings

ROOT = Path(__file__).parents[3]
DOCS = [ROOT / "docs" / name for name in ("install.md", "operate.md")]
OPERATE = DOCS[1].read_text()


def table_after(heading: str) -> list[str]:
    """Return the first cells of the table under a heading, without its two head lines."""
    section = OPERATE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [row.split("|")[1].strip() for row in rows[2:]]


def metric_names() -> set[str]:
    return {metric.name for registry in registries().values() for metric in registry.collect()}


def test_every_reason_is_explained_once():
    assert sorted(table_after("Why a pod waits")) == sorted(f"`{reason.value}`" for reason in Reason)


def test_every_name_of_ours_is_explained():
    cells = " ".join(table_after("Names"))
    named = [re.split(r"[=: ]", text)[0] for text in re.findall(r"`([^`]+)`", cells)]
    explained = {name if "/" in name else f"{labels.DOMAIN}/{name}" for name in named}
    ours = {
        value for value in vars(labels).values() if isinstance(value, str) and value.startswith(f"{labels.DOMAIN}/")
    }
    assert ours <= explained


def test_every_metric_named_is_there():
    known = metric_names()
    named = {name for doc in DOCS for name in re.findall(r"\bberthmaster_[a-z_]+", doc.read_text())}
    assert named
    assert {name.removesuffix("_total") for name in named} <= known


def test_every_metric_label_named_is_one_that_is_counted():
    assert set(re.findall(r'filter_total\{outcome="([\w-]+)"', OPERATE)) <= {outcome.value for outcome in Outcome}
    assert set(re.findall(r'decisions_total\{reason="([\w-]+)"', OPERATE)) <= {reason.value for reason in ScalingReason}
    assert set(re.findall(r'status="([\w-]+)"', OPERATE)) <= {status.value for status in SolveStatus}


def test_every_setting_named_is_read():
    found = re.findall(r"`(BERTHMASTER_SETTING_[A-Z_]+)`", OPERATE)
    assert found
    good = {"BERTHMASTER_SETTING_HAND_OVER_AFTER_S": "60", "BERTHMASTER_SETTING_SPARE_AFTER_S": "60"}
    good |= {"BERTHMASTER_SETTING_PREEMPTS": "true"}
    good |= {name: "1" for name in found if "_MOVES_" in name} | {"BERTHMASTER_SETTING_MOVES_MODE": "act"}
    # Raises if one names no setting.
    read(PlannerSettings, prefix="BERTHMASTER_SETTING", environment=dict.fromkeys(found, "0.1") | good, flags={})


def test_every_setting_of_the_scaler_named_is_read():
    found = re.findall(r"`(BERTHMASTER_SCALER_[A-Z_]+)`", OPERATE)
    assert found
    read(ScalerSettings, prefix=SCALER_PREFIX, environment=dict.fromkeys(found, "true"), flags={})


def test_every_setting_of_the_warm_pool_named_is_read():
    found = re.findall(r"`(BERTHMASTER_WARMPOOL_[A-Z_]+)`", OPERATE)
    assert found
    values = dict.fromkeys(found, "1") | {f"{POOL_PREFIX}_PROMETHEUS_URL": "http://prometheus:9090"}
    read(WarmPoolSettings, prefix=POOL_PREFIX, environment=values, flags={})


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_every_label_named_is_ours(doc):
    known = {value for value in vars(labels).values() if isinstance(value, str)}
    for name in re.findall(r"berthmaster\.dev/[\w-]+\w", doc.read_text()):
        assert name in known, name


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_every_file_named_is_there(doc):
    for path in re.findall(r"`((?:manifests|docs)/[\w./-]+)`", doc.read_text()):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_every_command_named_is_there(doc):
    commands = {path.stem for path in (ROOT / "berthmaster/commands").glob("[a-z]*")}
    assert set(re.findall(r"(?:^|`)berthmaster ([a-z]+)", doc.read_text(), re.MULTILINE)) <= commands
