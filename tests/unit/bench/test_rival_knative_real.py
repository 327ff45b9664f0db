"""Knative itself and Knative re-made give the same answers, tick by tick."""

import math
import os

import numpy as np
import pytest

from bench.scaler.rivals import RIVALS, kpa_program, prepare
from bench.scaler.rivals.knative import Knative
from bench.scaler.rivals.knative_real import RealKnative
from berthmaster.local.progress import Silent
from scaler.seen import Fleet
from tests.support.rival_seconds import a_fleet, a_second


@pytest.fixture(scope="module")
def program():
    try:
        found = kpa_program.ensure(Silent())
    except kpa_program.RivalError as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip("no Go here to build Knative's autoscaler with")
    return found


def a_day(seed, seconds):
    """Return loads and ready pods: quiet, surging, silent, with pods that follow late."""
    source = np.random.default_rng(seed)
    level = np.repeat(source.choice([0.0, 0.3, 5.0, 40.0, 700.0], size=seconds // 50), 50)
    loads = np.round(level * source.gamma(2.0, 0.5, size=level.size), 3)
    ready = np.repeat(source.integers(0, 40, size=seconds // 25), 25)
    lost = source.random(level.size) < 0.05
    lost[seconds // 2 : seconds // 2 + 130] = True  # longer than the stable window
    return [None if gone else load for gone, load in zip(lost, loads.tolist(), strict=True)], ready.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_both_answer_alike(program, seed):
    loads, ready = a_day(seed, 3000)
    real, made = RealKnative(5.6, 8.0, 60.0, 100_000, program=program), Knative(5.6, 8.0, 60.0, 100_000)
    begin_s = 1_000_000 + seed
    differ = []
    for at_s, (load, pods) in enumerate(zip(loads, ready, strict=True), begin_s):
        fleet = Fleet(ready=pods)
        sample = a_second(float(at_s), load)
        real.see(sample, fleet)
        made.see(sample, fleet)
        if at_s % 2 == 0:
            answers = real.decide(float(at_s), fleet), made.decide(float(at_s), fleet)
            if answers[0] != answers[1]:
                differ.append((at_s, *answers))
    assert differ == []


def test_a_panic_ends_sixty_seconds_after_its_last_cause(program):
    rival = RealKnative(5.6, 8.0, 60.0, 1000, program=program)
    wanted = {}
    for at_s in range(2, 80):
        rival.see(a_second(float(at_s), 560.0 if at_s < 10 else 5.0), a_fleet(20))
        if at_s % 2 == 0:
            wanted[at_s] = rival.decide(float(at_s), a_fleet(20))
    # The 6 s up to 12 s still hold three seconds of 560: 51 pods, more than twice 20. Those up to 14 s hold one.
    assert (wanted[2], wanted[72]) == (100, 100)
    assert wanted[74] == 10  # half of those ready: the largest shrink of one tick


def test_a_broken_program_is_an_error_that_says_so(tmp_path):
    broken = tmp_path / "kpa"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    rival = RealKnative(5.6, 8.0, 60.0, 1000, program=broken)
    with pytest.raises(kpa_program.RivalError, match="broke off"):
        rival.decide(2.0, a_fleet(1))


def test_the_program_says_what_it_does_not_understand(program):
    rival = RealKnative(5.6, 8.0, 60.0, 1000, program=program)
    rival.see(a_second(1.0, 5.0), a_fleet(1))
    rival.see(a_second(math.nan, 5.0), a_fleet(1))
    with pytest.raises(kpa_program.RivalError, match=r"did not understand: error: second .nan"):
        rival.decide(2.0, a_fleet(1))


def test_the_process_ends_with_the_rival(program):
    rival = RealKnative(5.6, 8.0, 60.0, 1000, program=program)
    rival.decide(2.0, a_fleet(1))
    process = rival._process
    del rival
    assert process.poll() == 0


def test_without_go_the_registry_gives_the_re_made_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(kpa_program, "_INSTALLED", "/nowhere")
    assert "re-made" in prepare(Silent())
    assert isinstance(RIVALS["Knative"](5.6, 8.0, 60.0, 1000), Knative)


def test_with_it_the_registry_gives_knative_itself(program):
    assert prepare(Silent()) == "Knative: its own knative.dev/serving v0.48.0"
    assert isinstance(RIVALS["Knative"](5.6, 8.0, 60.0, 1000), RealKnative)


def test_a_failed_build_names_its_log(tmp_path, monkeypatch):
    fake = tmp_path / "go" / "go"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    fake.chmod(0o755)
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    with pytest.raises(kpa_program.RivalError, match=r"build\.log"):
        kpa_program.ensure(Silent(), environ=environ)
    log = kpa_program.cached(environ).with_name("build.log")
    assert "no network" in log.read_text()
    assert not kpa_program.cached(environ).exists()
