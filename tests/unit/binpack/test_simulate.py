"""The openb protocol over any policy: every arrival has one outcome, and an independent recount agrees."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from berthmaster.commands.simulate import command
from binpack.simulate import MILESTONES, OURS, POLICIES, Outcome, Setting, simulate
from binpack.tally import Tally
from binpack.trace import load_nodes, load_pods
from fleet.errors import ConfigError
from fleet.pod import Berth
from tests.support.berths import chosen, pod, seat, share

NODES = load_nodes()[::40]
PODS = load_pods()[::40]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_keeps_the_rules_of_the_protocol(policy: str) -> None:
    outcomes: list[Outcome] = []
    result = simulate(NODES, PODS, Setting(policy=policy, seed=3), on_outcome=outcomes.append)
    assert result.refused_but_fits == 0
    assert result.faults == ()
    assert result.arrived == len(outcomes) > len(PODS)
    assert sum(result.failed_pods.values()) == sum(outcome.berth is None for outcome in outcomes)
    assert all(outcome.reason for outcome in outcomes if outcome.berth is None)
    assert len({outcome.pod.name for outcome in outcomes}) == len(outcomes)
    assert list(result.unallocated_at) == list(MILESTONES)
    falling = list(result.unallocated_at.values())
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == result.unallocated_gpu_ratio
    assert falling[0] >= 1 - 0.9


def test_a_run_repeats() -> None:
    first, second = (simulate(NODES, PODS, Setting(policy="random", seed=5)) for _ in range(2))
    assert first.unallocated_at == second.unallocated_at
    assert simulate(NODES, PODS, Setting(policy="random", seed=6)).failed_pods != first.failed_pods


def test_batches_are_planned_together_and_every_pod_still_has_one_outcome() -> None:
    outcomes: list[Outcome] = []
    setting = Setting(batch=30, arrive_ratio=0.9)
    result = simulate(NODES[:8], PODS[::4], setting, on_outcome=outcomes.append)
    assert result.faults == ()
    assert result.arrived == len(outcomes) == len({outcome.pod.name for outcome in outcomes})
    alone: list[Outcome] = []
    simulate(NODES[:8], PODS[::4], Setting(arrive_ratio=0.9), on_outcome=alone.append)
    assert [outcome.pod for outcome in alone] == [outcome.pod for outcome in outcomes]


def test_learning_the_mix_is_another_run_and_keeps_the_rules_too() -> None:
    result = simulate(NODES, PODS, Setting(mix="learn"))
    assert result.refused_but_fits == 0
    assert result.faults == ()


def test_the_default_trace_is_packed_as_well_as_the_recipe_says() -> None:
    result = simulate(load_nodes(), load_pods(), Setting(policy=OURS, seed=42, arrive_ratio=1.0))
    assert result.unallocated_at[100] is not None
    assert result.unallocated_at[100] <= 0.039
    assert result.refused_but_fits == 0
    assert result.faults == ()


def test_arrivals_that_end_early_leave_later_milestones_open() -> None:
    result = simulate(NODES, PODS, Setting(arrive_ratio=1.0))
    assert result.unallocated_at[100] == result.unallocated_gpu_ratio
    assert [result.unallocated_at[at] for at in (110, 120, 130)] == [None] * 3


def test_a_cluster_without_gpus_has_no_ratios() -> None:
    result = simulate([seat("n1", cpu=2).node], [pod(f"p{i}") for i in range(3)], Setting())
    assert result.unallocated_gpu_ratio is None
    assert result.arrived_ratio is None
    assert set(result.unallocated_at.values()) == {None}
    assert result.failed_pods == {"cpu": 1}


def test_all_that_is_wrong_with_a_setting_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        simulate(NODES, PODS, Setting(policy="magic", arrive_ratio=0, batch=0, mix="guess"))
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigError, match="places one pod at a time"):
        simulate(NODES, PODS, Setting(policy="fgd", batch=5))


def test_the_recount_catches_what_a_policy_could_get_wrong() -> None:
    tally = Tally([seat("n1", [1000, 1000], cpu=4).node])
    tally.book(pod("a", ask=share(600)), Berth(node="n1", devices=("0",)))
    assert tally.faults == []
    assert tally.where_it_fits(pod("b", ask=chosen())) == "n1"
    assert tally.where_it_fits(pod("b", ask=chosen(2))) is None
    assert tally.where_it_fits(pod("b", cpu=4)) is None
    tally.book(pod("b", ask=share(600)), Berth(node="n1", devices=("0",)))
    tally.book(pod("c", ask=chosen()), Berth(node="n1", devices=("1", "1")))
    tally.book(pod("d", cpu=9), Berth(node="n1"))
    tally.book(pod("e"), Berth(node="n2"))
    assert [fault.split(":")[0] for fault in tally.faults] == ["b", "c", "d", "e"]


def written(folder: Path, *options: str) -> tuple[dict, list[dict]]:
    nodes, pods, result, lines = (folder / name for name in ("nodes.csv", "pods.csv", "result.json", "lines.jsonl"))
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,16000,65536,2,T4\nb,64000,262144,8,G2\n")
    rows = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"]
    rows += [f"p{i:02},2000,1024,1,{[1000, 470, 250][i % 3]},{['', 'T4', 'T4|G2'][i % 3]}" for i in range(12)]
    rows += ["c0,4000,1024,0,0,", "e0,32000,1024,8,1000,"]
    pods.write_text("\n".join(rows) + "\n")
    run = CliRunner().invoke(
        command,
        ["--nodes", str(nodes), "--pods", str(pods), "--json", str(result), "--placements", str(lines), *options],
    )
    assert run.exit_code == 0, run.output
    return json.loads(result.read_text()), [json.loads(line) for line in lines.read_text().splitlines()]


@pytest.mark.parametrize("policy", [OURS, "fgd", "random"])
def test_the_written_placements_can_be_replayed_and_recounted(tmp_path: Path, policy: str) -> None:
    report, lines = written(tmp_path, "--policy", policy, "--seed", "7")
    capacity = {"a": (16_000, 65_536, 2), "b": (64_000, 262_144, 8)}
    cpu: dict[str, int] = defaultdict(int)
    memory: dict[str, int] = defaultdict(int)
    milli: dict[tuple[str, str], int] = defaultdict(int)
    failed = 0
    for line in lines:
        assert {"pod", "node", "devices", "gpu_milli", "cpu_milli", "memory_mib"} <= set(line)
        if line["node"] is None:
            failed += 1
            assert line["reason"] == "Insufficient"
            continue
        cpu[line["node"]] += line["cpu_milli"]
        memory[line["node"]] += line["memory_mib"]
        for device in line["devices"]:
            assert int(device) < capacity[line["node"]][2]
            milli[line["node"], device] += line["gpu_milli"]
    assert all(cpu[name] <= capacity[name][0] and memory[name] <= capacity[name][1] for name in capacity)
    assert all(amount <= 1000 for amount in milli.values())
    assert report["unallocated_gpu_ratio"] == pytest.approx(1 - sum(milli.values()) / 10_000, abs=1e-6)
    assert sum(report["failed_pods"].values()) == failed > 0
    assert report["arrived_pods"] == len(lines)
    assert report["policy"] == policy
    assert report["trace"] == "pods"
    assert (report["moves"], report["bound_ratio"], report["refused_but_fits"]) == (0, None, 0)
    assert set(report["unallocated_at"]) == {"90", "95", "100", "110", "120", "130"}
    assert set(report["bound_at"].values()) == {None}, "not asked for"
    assert report["wall_s"] > 0
    assert report["pods_per_s"] > 0


def test_the_command_prints_a_table_or_json_and_names_what_it_cannot_read(tmp_path: Path) -> None:
    written(tmp_path)
    files = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    table = CliRunner().invoke(command, files)
    assert "no pod refused that fits" in table.output
    as_json = CliRunner().invoke(command, [*files, "--json", "-"])
    assert json.loads(as_json.stdout)["policy"] == "berthmaster"
    lines = CliRunner().invoke(command, [*files, "--placements", "-"])
    assert all(json.loads(line)["pod"] for line in lines.stdout.splitlines())
    both = CliRunner().invoke(command, [*files, "--placements", "-", "--json", "-"])
    assert both.exit_code == 2
    missing = CliRunner().invoke(command, ["--nodes", str(tmp_path / "no.csv")])
    assert "no.csv: cannot be read" in str(missing.exception)
    unwritable = CliRunner().invoke(command, [*files, "--json", str(tmp_path / "no" / "result.json")])
    assert "cannot write" in unwritable.output


def test_the_command_proves_a_bound_beside_the_result(tmp_path: Path) -> None:
    report, _ = written(tmp_path, "--bound")
    assert report["bound_ratio"] == report["bound_at"]["130"]
    assert list(report["bound_at"]) == list(report["unallocated_at"])
    for at, bound in report["bound_at"].items():
        assert max(0, 1 - int(at) / 100) - 1e-6 <= bound <= report["unallocated_at"][at]
    files = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    assert "any method at least" in CliRunner().invoke(command, [*files, "--bound"]).output
    assert "any method at least" not in CliRunner().invoke(command, files).output
    assert "only berthmaster" in str(
        CliRunner().invoke(command, [*files, "--moves-ratio", "0.05", "--policy", "fgd"]).exception
    )
