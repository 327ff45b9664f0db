"""`replay`: the part that is asked for, what differs, and the command from a saved hour or a serving controller."""

from __future__ import annotations

import json

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from berthmaster.commands.replay import _ask, command
from berthmaster.replaying import Move, differences, highest, line, moves_of, part
from fleet.errors import BerthmasterError, ConfigError, DecodeError
from fleet.http import FetchError, TokenFile
from scaler.controller.server import add_history
from scaler.decision import Decision, Reason, Sizing
from scaler.recorded import Recorded, from_json, to_json
from scaler.resource import policy_of
from scaler.ring import History, Ring
from scaler.simulate.load import Load
from scaler.simulate.ours import Ours
from scaler.simulate.run import simulate
from scaler.simulate.world import World

EPOCH_S = 1_796_000_000.0
SPEC = {
    "targetRef": {"kind": "Deployment", "name": "llm"},
    "minReplicas": 1,
    "maxReplicas": 60,
    "targetConcurrency": {"initial": 5.6, "learn": False, "limit": 8},
    "signals": {"balancer": {"name": "edge", "backend": "llm"}},
}


class Recorder:
    """Our rules, written down as the controller does."""

    def __init__(self):
        self.ring = Ring(0.0)
        self._sizing = Sizing(target=5.6, slots=8.0)
        self._ours = Ours(policy_of(SPEC), self._sizing, 60.0)
        self.period_s = self._ours.period_s

    def see(self, sample, fleet):
        self._ours.see(sample, fleet)
        self.ring.see(sample, fleet)

    def decide(self, now_s, fleet):
        wanted = self._ours.decide(now_s, fleet)
        self.ring.decided(self._ours.last, self._sizing, 60.0)
        return wanted


@pytest.fixture(scope="module")
def document():
    """20 minutes: 10 requests/s, 40 from the tenth minute on."""
    random = np.random.default_rng(7)
    rates = np.where(np.arange(1200) < 600, 10, 40)
    arrivals = np.concatenate([s + np.sort(random.random(random.poisson(rate))) for s, rate in enumerate(rates)])
    load = Load(arrival_s=arrivals, service_s=random.exponential(1.0, len(arrivals)) + 1e-3, duration_s=1200)
    recorder = Recorder()
    simulate(load, recorder, World(slots=8, start_s=60, initial_replicas=3, max_replicas=60))
    return to_json(Recorded(autoscaler="models/llm", spec=SPEC, history=recorder.ring.history()), EPOCH_S)


@pytest.fixture
def saved(document, tmp_path):
    path = tmp_path / "history.json"
    path.write_bytes(document)
    return str(path)


def ask(*words):
    return CliRunner().invoke(command, words, catch_exceptions=True)


def test_the_same_settings_tell_how_well_the_simulation_tells(saved):
    found = json.loads(ask("--file", saved, "--json").output)
    was, same = found["outcomes"]["was"], found["outcomes"]["same"]
    assert set(found["outcomes"]) == {"was", "same"}
    assert same["replica_s"] == pytest.approx(was["replica_s"], rel=0.1)
    assert same["late_ratio"] == pytest.approx(was["late_ratio"], abs=0.03)
    assert was["late_ratio"] > 0.01, "the step was felt"
    assert len(found["replicas_was"]) == len(found["replicas_would"]) == round(found["to_s"] - found["from_s"]) + 1


def test_other_settings_change_what_would_have_been_and_not_what_was(saved):
    plain = json.loads(ask("--file", saved, "--json").output)
    found = json.loads(ask("--file", saved, "--json", "--set", "maxReplicas=4").output)
    assert found["outcomes"]["was"] == plain["outcomes"]["was"]
    assert found["outcomes"]["same"] == plain["outcomes"]["same"]
    assert found["outcomes"]["would"]["peak_replicas"] == 4
    assert found["outcomes"]["would"]["late_ratio"] > 2 * found["outcomes"]["was"]["late_ratio"]
    assert found["changes"] == ["maxReplicas=4"]
    first = found["differences"][0]
    assert first["was"]["replicas"] != (first["would"] or {}).get("replicas")


def test_settings_that_want_another_memory_are_compared_from_the_same_second(saved):
    found = json.loads(ask("--file", saved, "--json", "--set", "behavior.mode=thrifty").output)
    plain = json.loads(ask("--file", saved, "--json").output)
    assert (found["from_s"], found["outcomes"]["was"]) == (plain["from_s"], plain["outcomes"]["was"])
    assert len(found["replicas_would"]) == len(plain["replicas_would"])


def test_people_get_a_table_lines_and_the_differing_decisions(saved):
    text = ask("--file", saved, "--set", "maxReplicas=4").output
    for expected in ("models/llm", "late requests", "with the changes", "replicas, was", "decisions that differ", "█"):
        assert expected in text


def test_a_part_is_compared_from_where_it_was_asked_for(saved):
    from_s = EPOCH_S + 700
    since = np.datetime_as_string(np.datetime64(round(from_s), "s")) + "Z"
    found = json.loads(ask("--file", saved, "--from", since, "--json").output)
    assert found["from_s"] == pytest.approx(from_s, abs=1.0)
    assert found["to_s"] == pytest.approx(EPOCH_S + 1200, abs=1.0)


@pytest.mark.parametrize(
    ("words", "kind", "complaint"),
    [
        (("--set", "target.max=x"), DecodeError, "must be a number"),
        (("--set", "nothing=1"), DecodeError, "there is no setting"),
        (("--set", "maxReplicas=0"), ConfigError, "maxReplicas must be at least 1"),
        (("--from", "soon"), DecodeError, "is no moment"),
        (("--from", "-5m", "--to", "-10m"), BerthmasterError, "is not before"),
        (("--from", "2020-01-01T00:00Z", "--to", "2020-01-01T01:00Z"), BerthmasterError, "what is kept is 2026-"),
    ],
)
def test_what_cannot_be_is_told(saved, words, kind, complaint):
    result = ask("--file", saved, *words)
    assert isinstance(result.exception, kind)
    assert complaint in str(result.exception)


@pytest.mark.parametrize("words", [(), ("models/llm", "--file", "x")])
def test_a_name_or_a_file_and_not_both(words):
    assert ask(*words).exit_code == 2


def test_a_file_that_is_none_is_told_by_name(tmp_path):
    assert "no-such" in str(ask("--file", str(tmp_path / "no-such")).exception)
    broken = tmp_path / "broken"
    broken.write_bytes(b"{}")
    assert isinstance(ask("--file", str(broken)).exception, DecodeError)


async def test_the_controller_is_asked_with_the_token_in_seconds_before_now(document, tmp_path):
    token = tmp_path / "token"
    token.write_text("abc\n")
    asked = []

    def tell(key, from_ago_s, to_ago_s):
        asked.append((str(key), from_ago_s, to_ago_s))
        return document if key.name == "llm" else None

    app = web.Application()
    add_history(app, TokenFile(token), tell)
    async with TestServer(app) as server:
        url = f"http://{server.host}:{server.port}/"
        given = {"to": 60.0}
        assert await _ask(url, "models", "llm", given, str(token), None) == document
        assert asked == [("models/llm", float("inf"), 60.0)]
        with pytest.raises(FetchError, match="a bearer token is needed"):
            await _ask(url, "models", "llm", given, None, None)
        with pytest.raises(FetchError, match="nothing is known of models/other"):
            await _ask(url, "models", "other", given, str(token), None)


def a_history(seconds=600, decisions=()):
    columns = {name: np.arange(seconds, dtype=float) for name in ("arrivals", "ready")}
    rows = [(float(at), float(current), float(desired)) for at, current, desired, _ in decisions]
    names = ("at_s", "current", "desired")
    return History(
        from_s=1000.0,
        seconds=columns,
        decisions={name: np.array([row[i] for row in rows]) for i, name in enumerate(names)},
        reasons=tuple(reason for *_, reason in decisions),
    )


@pytest.mark.parametrize(
    ("from_s", "to_s", "last"),
    [
        (None, None, 600),
        (1100.0, None, 600),
        (1400.0, 1500.0, 500),
        (1599.0, 9999.0, 600),
        (0.0, 1001.0, 1),
    ],
)
def test_a_part_has_all_before_it_and_nothing_after(from_s, to_s, last):
    found = part(a_history(decisions=[(1000, 1, 1, Reason.FITS), (1550, 1, 2, Reason.DEMAND)]), from_s, to_s)
    assert found.from_s == 1000.0
    assert found.seconds["ready"].tolist() == list(range(last))
    assert len(found.reasons) == len(found.decisions["at_s"])
    assert (Reason.DEMAND in found.reasons) is (last > 550)


@pytest.mark.parametrize(("from_s", "to_s"), [(1600.0, None), (None, 1000.0), (5000.0, 6000.0)])
def test_a_part_that_was_not_recorded_is_refused(from_s, to_s):
    with pytest.raises(BerthmasterError, match="1970-01-01T00:16:40Z to 1970-01-01T00:26:40Z"):
        part(a_history(), from_s, to_s)


def test_an_empty_history_is_refused():
    with pytest.raises(BerthmasterError, match="nothing was recorded"):
        part(a_history(0), None, None)


def test_moves_are_decisions_that_moved_the_count_once_each():
    history = a_history(
        decisions=[
            (1000, 3, 3, Reason.FITS),
            (1005, 3, 5, Reason.DEMAND),
            (1010, 4, 5, Reason.DEMAND),
            (1015, 5, 5, Reason.FITS),
            (1020, 5, 4, Reason.EXCESS),
        ]
    )
    assert [(move.at_s, move.replicas) for move in moves_of(history, 0.0)] == [(1005.0, 5), (1020.0, 4)]
    assert [move.at_s for move in moves_of(history, 1011.0)] == [1020.0]


def moves(*given):
    return [Move(at_s=at_s, replicas=replicas, reason=Reason.DEMAND) for at_s, replicas in given]


@pytest.mark.parametrize(
    ("was", "would", "expected"),
    [
        ([(0, 5)], [(0, 5)], []),
        ([(0, 5)], [(5, 5)], []),
        ([(0, 5)], [(6, 5)], [(5, None), (None, 5)]),
        ([(0, 5)], [(4, 6)], [(5, 6)]),
        ([(0, 5)], [(60, 5)], [(5, None), (None, 5)]),
        ([], [(9, 2), (3, 1)], [(None, 1), (None, 2)]),
        ([(0, 5), (5, 6)], [(0, 5), (5, 6)], []),
    ],
)
def test_differences(was, would, expected):
    found = differences(moves(*was), moves(*would))
    assert [(d.was and d.was.replicas, d.would and d.would.replicas) for d in found] == expected
    assert [d.at_s for d in found] == sorted(d.at_s for d in found)


def test_a_line_shows_the_largest_of_each_part_and_gaps():
    assert line(np.array([0.0, 1.0, np.nan, np.nan, 7.0, 3.5]), 3, 7.0) == "▂ █"
    assert line(np.array([1.0, 2.0]), 50, 2.0) == "▅█"
    assert highest([np.nan, 0.0], [3.0]) == 3.0
    assert highest([np.nan, -1.0]) == 1.0


def test_what_is_recorded_comes_back():
    ring = Ring(0.0)
    ring.decided(Decision(at_s=5.0, current=1, desired=2, reason=Reason.WAKE), Sizing(target=5.6), 60.0)
    back = from_json(to_json(Recorded(autoscaler="a/b", spec=SPEC, history=ring.history()), EPOCH_S))
    assert (back.autoscaler, back.spec) == ("a/b", SPEC)
    assert back.history.decisions["at_s"].tolist() == [EPOCH_S + 5]
    assert back.history.decisions["target"][0] == pytest.approx(5.6)
    assert np.isnan(back.history.decisions["slots"][0])
    assert back.history.reasons == (Reason.WAKE,)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda told: told.pop("seconds"),
        lambda told: told["seconds"].pop("queued"),
        lambda told: told["seconds"]["queued"].pop(),
        lambda told: told["reasons"].append("Fits"),
        lambda told: told["reasons"].__setitem__(0, "Whim"),
        lambda told: told["seconds"].__setitem__("ready", ["x"]),
    ],
)
def test_a_broken_document_is_refused_by_name(document, break_it):
    told = json.loads(document)
    break_it(told)
    with pytest.raises(DecodeError, match="the history cannot be read"):
        from_json(json.dumps(told).encode())
