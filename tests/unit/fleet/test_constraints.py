from __future__ import annotations

import pytest

from fleet.constraints import CORDON, Mismatch, NodeConstraints, NodeTerm, Requirement, Taint, Toleration

ZONE = {"zone": "a", "cores": "64"}


@pytest.mark.parametrize(
    ("operator", "values", "value", "accepted"),
    [
        ("In", ("a", "b"), "a", True),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), None, True),
        ("NotIn", ("a",), "a", False),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "", False),
        ("Gt", ("8",), "9", True),
        ("Gt", ("8",), "8", False),
        ("Lt", ("8",), "7", True),
        ("Lt", ("8",), "x", False),
        ("Gt", ("8", "9"), "10", False),
        ("Gt", ("8",), None, False),
        ("Gt", ("8",), "1_000", False),
        ("Lt", ("8",), "-9", True),
        ("Resembles", ("a",), "a", False),
    ],
)
def test_requirements_read_as_in_kubernetes(
    operator: str, values: tuple[str, ...], value: str | None, accepted: bool
) -> None:
    assert Requirement(key="k", operator=operator, values=values).accepts(value) is accepted


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Equal", value="v"), False),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="k", operator="", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", operator="Maybe", value="v"), False),
    ],
)
def test_tolerations_cover_their_taints(toleration: Toleration, tolerated: bool) -> None:
    assert toleration.tolerates(Taint(key="k", value="v")) is tolerated


def test_any_term_suffices_and_an_empty_one_matches_nothing() -> None:
    here = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n1",)),))
    there = NodeTerm(labels=(Requirement(key="zone", operator="In", values=("b",)),))
    assert NodeConstraints(terms=(there, here)).mismatch("n1", ZONE, (), is_cordoned=False) is None
    assert NodeConstraints(terms=(there,)).mismatch("n1", ZONE, (), is_cordoned=False) is Mismatch.AFFINITY
    assert NodeConstraints(terms=(NodeTerm(),)).mismatch("n1", ZONE, (), is_cordoned=False) is Mismatch.AFFINITY
    assert NodeConstraints(terms=()).mismatch("n1", ZONE, (), is_cordoned=False) is Mismatch.AFFINITY


def test_all_requirements_of_a_term_must_hold_and_fields_know_only_the_name() -> None:
    both = NodeTerm(
        labels=(Requirement(key="zone", operator="Exists"), Requirement(key="cores", operator="Gt", values=("64",))),
    )
    other_field = NodeTerm(fields=(Requirement(key="metadata.uid", operator="In", values=("n1",)),))
    assert not both.matches("n1", ZONE)
    assert not other_field.matches("n1", ZONE)


def test_the_first_obstacle_is_named() -> None:
    picky = NodeConstraints(node_selector=(("zone", "b"),))
    taints = (Taint(key="gpu", effect="NoExecute"),)
    assert picky.mismatch("n1", ZONE, taints, is_cordoned=True) is Mismatch.SELECTOR
    assert NodeConstraints().mismatch("n1", ZONE, taints, is_cordoned=True) is Mismatch.CORDONED
    assert NodeConstraints().mismatch("n1", ZONE, taints, is_cordoned=False) is Mismatch.TAINT


def test_a_cordon_is_tolerated_like_a_taint_and_preferences_never_exclude() -> None:
    patient = NodeConstraints(tolerations=(Toleration(key=CORDON.key, operator="Exists"),))
    assert patient.mismatch("n1", {}, (CORDON,), is_cordoned=True) is None
    assert NodeConstraints().mismatch("n1", {}, (CORDON,), is_cordoned=True) is Mismatch.CORDONED
    # A cordon's taint excludes even where the cordon itself is gone already, or never was there.
    assert NodeConstraints().mismatch("n1", {}, (CORDON,), is_cordoned=False) is Mismatch.TAINT
    assert patient.mismatch("n1", {}, (CORDON,), is_cordoned=False) is None
    mild = (Taint(key="k", effect="PreferNoSchedule"),)
    assert NodeConstraints().mismatch("n1", {}, mild, is_cordoned=False) is None
