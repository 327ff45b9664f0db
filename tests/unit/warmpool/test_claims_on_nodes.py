"""Claims: their text, their patches, and the walk over candidates."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from fleet import labels
from fleet.claim import (
    FIRM_S,
    Claim,
    claim_patch,
    format_claim,
    lapses_at_s,
    parse_claim,
    read_claim,
    standing,
    unclaim_patch,
    with_pods,
)
from fleet.errors import ApiError, DecodeError, Invalid
from fleet.kube import paths
from fleet.kube.claimer import Candidate, Claimer, Held, Loss, Miss
from tests.support.claims import Nodes, run

SOFT = Claim(set_id="s", pods=("u1",), seconds=30, token="t")


def a_claimer(api: Any) -> Claimer:
    tokens = itertools.count()
    return Claimer(api, lambda: str(next(tokens)))


def candidates(api: Nodes, *names: str) -> list[Candidate]:
    return [Candidate(name=n, uid=f"uid-{n}", warm=api.warm_of(n), claim=api.claim_of(n)) for n in names]


def test_a_claim_reads_back() -> None:
    assert parse_claim(format_claim(SOFT)) == SOFT


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        '{"set":"s","pods":["u"],"kind":"hard","seconds":1}',
        '{"set":"s","pods":["u"],"kind":"soft","seconds":0}',
        '{"set":"s","pods":["u"],"kind":"soft","seconds":99999999}',
        '{"set":1,"pods":["u"],"kind":"soft","seconds":1}',
        "\x00",
    ],
)
def test_a_text_that_is_no_claim_keeps_others_off_and_lapses(text: str) -> None:
    with pytest.raises(DecodeError, match=labels.CLAIM):
        parse_claim(text)
    claim = read_claim(text)
    assert standing(claim, 100.0, 100.0 + FIRM_S - 1)
    assert not standing(claim, 100.0, 100.0 + FIRM_S)


def test_no_text_is_no_claim() -> None:
    assert read_claim("") is None
    assert not standing(None, 0.0, 0.0)


def test_a_claim_lapses_by_the_readers_own_clock_unless_its_pods_are_there() -> None:
    assert lapses_at_s(SOFT, 900.0) == 930.0
    assert standing(SOFT, 900.0, 929.9)
    assert not standing(SOFT, 900.0, 930.0)
    assert standing(SOFT, 900.0, 10_000.0, pods_here=True)


def test_a_node_that_is_not_open_has_no_patch() -> None:
    with pytest.raises(DecodeError, match="not open"):
        claim_patch("uid", SOFT)


def test_a_claim_is_refused_on_another_node_of_the_same_name() -> None:
    api = Nodes(w1="img")
    with pytest.raises(Invalid):
        api.write(paths.node("w1"), claim_patch("uid-other", SOFT, warm="img"))
    assert api.claim_of("w1") == ""


def test_an_old_picture_of_the_images_does_not_claim() -> None:
    api = Nodes(w1="img:2")
    with pytest.raises(Invalid):
        api.write(paths.node("w1"), claim_patch("uid-w1", SOFT, warm="img:1"))


def test_only_the_very_claim_is_removed() -> None:
    api = Nodes(w1="img")
    api.write(paths.node("w1"), claim_patch("uid-w1", SOFT, warm="img"))
    firm = Claim(set_id="s", pods=("u1",), is_firm=True, seconds=600, token="t2")
    api.write(paths.node("w1"), claim_patch("uid-w1", firm, over=format_claim(SOFT)))
    with pytest.raises(Invalid):
        api.write(paths.node("w1"), unclaim_patch("uid-w1", format_claim(SOFT)))
    api.write(paths.node("w1"), unclaim_patch("uid-w1", format_claim(firm)))
    assert api.claim_of("w1") == ""


def test_pods_of_one_set_share_a_node() -> None:
    api = Nodes(w1="img", w2="img")
    claimer = a_claimer(api)
    first = run(claimer.draw("s", ("u1",), candidates(api, "w1", "w2")))
    second = run(claimer.draw("s", ("u2",), candidates(api, "w1", "w2")))
    assert isinstance(first, Held)
    assert isinstance(second, Held)
    assert second.node == "w1"
    assert parse_claim(api.claim_of("w1")).pods == ("u1", "u2")
    assert api.claim_of("w2") == ""


def test_a_set_that_was_claimed_meanwhile_is_joined_not_lost() -> None:
    api = Nodes(w1="img")
    claimer = a_claimer(api)
    old = candidates(api, "w1")
    run(claimer.draw("s", ("u1",), old))
    assert isinstance(run(claimer.draw("s", ("u2",), old)), Held)
    assert parse_claim(api.claim_of("w1")).pods == ("u1", "u2")


def test_a_miss_says_why_for_each_candidate() -> None:
    api = Nodes(w1="img", w2="", w3="img")
    claimer = a_claimer(api)
    seen = candidates(api, "w1", "w2", "w3")
    run(claimer.draw("other", ("u0",), seen[:1]))
    del api.objects["w3"]
    answer = run(claimer.draw("s", ("u1",), seen))
    assert answer == Miss(losses=(("w1", Loss.FASTER), ("w2", Loss.NOT_OPEN), ("w3", Loss.GONE)))
    assert run(claimer.draw("s", ("u1",), candidates(api, "w1"))) == Miss(losses=(("w1", Loss.CLAIMED),))


def test_a_lost_answer_is_looked_up() -> None:
    api = Nodes(w1="img", w2="img")
    api.lose = 1
    answer = run(a_claimer(api).draw("s", ("u1",), candidates(api, "w1", "w2")))
    assert isinstance(answer, Held)
    assert answer.node == "w1"
    assert api.claim_of("w2") == ""


def test_a_claim_that_was_taken_away_cannot_be_made_firm() -> None:
    api = Nodes(w1="img")
    claimer = a_claimer(api)
    held = run(claimer.draw("s", ("u1",), candidates(api, "w1")))
    api.write(paths.node("w1"), unclaim_patch("uid-w1", held.text))
    assert run(claimer.confirm(held)) is None


def test_confirm_keeps_the_pods_and_stands_longer() -> None:
    api = Nodes(w1="img")
    claimer = a_claimer(api)
    held = run(claimer.draw("s", ("u1",), candidates(api, "w1")))
    firm = run(claimer.confirm(held))
    assert firm.claim.is_firm
    assert parse_claim(api.claim_of("w1")) == firm.claim
    assert firm.claim.seconds == FIRM_S


def test_giving_back_opens_the_node_again_and_spares_what_came_after() -> None:
    api = Nodes(w1="img")
    claimer = a_claimer(api)
    held = run(claimer.draw("s", ("u1",), candidates(api, "w1")))
    run(claimer.give_back(held))
    assert api.claim_of("w1") == ""
    other = run(claimer.draw("other", ("u2",), candidates(api, "w1")))
    run(claimer.give_back(held))
    assert api.claim_of("w1") == other.text


def test_a_silent_server_is_an_error_not_a_miss() -> None:
    class Dead(Nodes):
        async def json_patch(self, path: str, body: bytes) -> bytes:
            raise ApiError(0, "Timeout", "no answer")

        async def get(self, path: str) -> bytes:
            raise ApiError(0, "Timeout", "no answer")

    api = Dead(w1="img")
    with pytest.raises(ApiError):
        run(a_claimer(api).draw("s", ("u1",), candidates(api, "w1")))


def test_a_second_try_is_another_text() -> None:
    """The first may have taken place unseen and have been removed: whoever read it must not remove the second."""

    class Removed(Nodes):
        async def json_patch(self, path: str, body: bytes) -> bytes:
            self.write(path, body)
            if self.lose > 0:
                self.lose -= 1
                self.write(path, unclaim_patch("uid-w1", self.claim_of("w1")))
                raise ApiError(0, "Timeout", "the answer was lost")
            return b"{}"

    api = Removed(w1="img")
    api.lose = 1
    run(a_claimer(api).draw("s", ("u1",), candidates(api, "w1")))
    texts = [after[labels.CLAIM] for _, _, after in api.writes if labels.CLAIM in after]
    assert len(texts) == len(set(texts)) == 2


def test_more_pods_come_once_each() -> None:
    assert with_pods(SOFT, ("u1", "u2"), token="n").pods == ("u1", "u2")
    assert json.loads(format_claim(SOFT))["kind"] == "soft"
