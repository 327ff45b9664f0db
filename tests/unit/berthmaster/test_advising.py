"""`pools advise`: what is read of pools, files and options, and what is printed."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from berthmaster.advising import Drawer, asked_from, asked_of, document, tables, verdict, with_shapes
from berthmaster.commands.pools.advise import command
from berthmaster.options import output
from berthmaster.warmpool_object import pool_of
from fleet.draw import format_draw, hit
from fleet.errors import BerthmasterError, DecodeError
from warmpool.advice.propose import propose
from warmpool.advice.values import NodeShape


def a_pool(name, *, cost=4.0, devices=1, model="H100", image="img", goal=0.99, realised=0.98, lead=511.0):
    spec = {
        "shape": {"devices": {"count": devices, "model": model}},
        "images": [{"reference": image}],
        "objective": {"hitRate": goal},
        "idleHourCost": cost,
    }
    status = {"hitRate": {"realised": realised, "draws": 10}, "leadTime": {"meanSeconds": lead}}
    return pool_of(json.dumps({"metadata": {"name": name}, "spec": spec, "status": status}).encode())


def hours(draws=6.0, count=60, watched=3600.0, first=1000):
    return {first + hour: [draws, 0.0, 0.0, watched] for hour in range(count)}


DRAWERS = [Drawer(draw=format_draw(hit(name, "w")), devices=1) for name in ("a", "b")] + [Drawer(draw="odd", devices=3)]


def test_pools_become_demands_and_shapes():
    asked = asked_of([a_pool("a"), a_pool("b", lead=600.0)], {"a": hours(), "b": hours(draws=3.0, count=30)}, DRAWERS)
    (shape,) = asked.shapes
    assert shape == NodeShape(name="1 x H100", devices=1, model="H100", hour_cost=4.0, lead_s=600.0)
    one, other = asked.demands
    assert (one.name, one.devices, one.images, one.goal_ratio, one.per_hour) == ("a", 1, ("img",), 0.99, 6.0)
    assert (other.watched_hours, len(other.hourly)) == (30, 60), "hours stand beside each other"
    assert asked.realised == {"a": 0.98, "b": 0.98}
    assert asked.notes == ()


def test_half_watched_hours_are_scaled_and_hardly_watched_ones_left_out():
    asked = asked_of([a_pool("a")], {"a": {1: [3.0, 0, 0, 1800.0], 2: [1.0, 0, 0, 60.0]}}, DRAWERS)
    assert asked.demands[0].hourly == (6.0, None)


def test_what_had_to_be_assumed_is_said():
    asked = asked_of([a_pool("new", cost=None, devices=8)], {}, ())
    assert asked.demands[0].devices == 0
    assert asked.shapes[0].hour_cost == 8.0
    assert asked.notes == (
        "new: no pod of it is there, so a draw is taken to need a whole node",
        "no pool tells what an idle hour costs: each device is counted as 1",
    )


def test_an_answer_is_told_in_tables_a_verdict_and_json():
    asked = asked_of([a_pool("a"), a_pool("b")], {"a": hours(), "b": hours()}, DRAWERS)
    proposal = propose(asked.demands, asked.shapes)
    console = output()
    with console.capture() as captured:
        for table in tables(asked, proposal):
            console.print(table)
    text = captured.get()
    assert "a + b" in text
    assert "98.0%" in text
    assert "1 pools instead of 2 would idle for" in verdict(proposal)
    found = document(asked, proposal)
    assert found["today"][0]["realised_hit_ratio"] == 0.98
    assert [pool["serves"] for pool in found["proposed"]] == [("a", "b")]
    alone = propose(asked.demands[:1], asked.shapes)
    assert verdict(alone).startswith("today's pools stand")


@pytest.mark.parametrize(
    "text", ["x", "x=", "x=8:H100", "x=eight:H100:1", "=8:H100:1", "x=8:H100:1:2:3", "x=8:H100:-1"]
)
def test_shapes_that_cannot_be_read_are_refused(text):
    with pytest.raises(BerthmasterError, match="shape"):
        with_shapes(asked_of([], {}, ()), [text])


def test_more_shapes_are_weighed():
    asked = with_shapes(asked_of([a_pool("a")], {"a": hours()}, DRAWERS), ["h8=8:H100:3:300"])
    assert asked.shapes[-1] == NodeShape(name="h8", devices=8, model="H100", hour_cost=3.0, lead_s=300.0)
    assert propose(asked.demands, asked.shapes).pools[0].shape.name == "h8"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"demands": [{"name": "a", "shape": "gone"}]}, "there is no shape gone"),
        ({"demands": [{"name": "a", "shape": "s", "devices": 9}]}, "does not fit on shape s"),
        ({"demands": [{"name": "a", "shape": "s", "goal_ratio": 2}]}, "between 0 and 1"),
        ({"demands": [{"name": "a", "shape": "s", "hourly": [-1]}]}, "draws in an hour"),
        ({"demands": [{"name": "a", "shape": "s"}, {"name": "a", "shape": "s"}]}, "twice"),
        ({"shapes": [{"name": "s", "devices": 1, "lead_s": 0}]}, "cannot be"),
        ({"demands": 1}, "holds no demands and shapes"),
    ],
)
def test_files_that_contradict_themselves_are_refused(change, said):
    good = {"shapes": [{"name": "s", "devices": 1}], "demands": [{"name": "a", "shape": "s"}]}
    with pytest.raises(DecodeError, match=said):
        asked_from(json.dumps(good | change).encode())


def test_the_command_reads_a_file_and_needs_no_cluster(tmp_path):
    asked = asked_of([a_pool("a"), a_pool("b")], {"a": hours(), "b": hours()}, DRAWERS)
    path, copy = tmp_path / "asked.json", tmp_path / "copy.json"
    path.write_bytes(msgspec.json.encode(asked))
    done = CliRunner().invoke(command, ["--file", str(path), "--save", str(copy)])
    assert done.exit_code == 0, done.output
    assert "a + b" in done.output
    assert asked_from(copy.read_bytes()) == asked
    told = json.loads(CliRunner().invoke(command, ["--file", str(path), "--json", "--most-pools", "2"]).output)
    assert told["is_optimal"]
    missing = CliRunner().invoke(command, ["--file", str(tmp_path / "none")])
    assert isinstance(missing.exception, BerthmasterError)
