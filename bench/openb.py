"""Packing quality on the openb protocol: our policy and the published ones re-made, beside the published figures.

    python -m bench.openb                                        # default trace, all policies, seeds 42..51
    python -m bench.openb --traces all --seeds 42-44 --policies berthmaster,fgd

Writes bench/results/openb_TRACE.json: the command, every run, mean and standard deviation over the seeds. Correctness
comes first: a run in which an independent count finds a device given twice, or a refused pod that would have fitted,
ends the bench. Figures differ from the published ones by the generator of the shuffles (Python's here, Go's there).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from berthmaster.commands.simulate import as_json
from binpack.simulate import MIXES, OURS, POLICIES, Setting, simulate
from binpack.trace import load_nodes, load_pods, traces

RESULTS = Path(__file__).parent / "results"
PUBLISHED = Path(__file__).parent / "openb_published.json"
# (policy, aim in %, +- or None for "at most"), default trace at 100 % arrived demand, mean over seeds 42..51.
TARGETS = (("fgd", 4.77, 0.35), ("best-fit", 7.14, 0.5), (OURS, 3.9, None))
MS_PER_DECISION = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="default", help=f"comma list, or all: {', '.join(traces())}")
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma list")
    parser.add_argument("--seeds", default="42-51", help="FROM-TO")
    parser.add_argument("--mix", default="given", choices=MIXES)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side; more than one blurs the times")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    chosen = traces() if given.traces == "all" else tuple(given.traces.split(","))
    given.out.mkdir(parents=True, exist_ok=True)
    for trace in chosen:
        report = bench(trace, given.policies.split(","), seeds, given.mix, given.jobs)
        suffix = "" if given.mix == "given" else f"_{given.mix}"
        path = given.out / f"openb_{trace}{suffix}.json"
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        show(report)
        print(f"wrote {os.path.relpath(path)}")


def bench(trace: str, policies: Sequence[str], seeds: Sequence[int], mix: str, jobs: int) -> dict[str, Any]:
    """Return every run of one trace and what they come to."""
    settings = [Setting(policy=policy, seed=seed, mix=mix) for policy in policies for seed in seeds]
    runs = []
    with ProcessPoolExecutor(jobs) as pool:
        for done, report in enumerate(pool.map(_run, [trace] * len(settings), settings), start=1):
            runs.append(report)
            print(f"\r{trace}: {done} of {len(settings)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    published = json.loads(PUBLISHED.read_text("utf-8"))
    at_100 = published["arrived_percent"].index(100)
    return {
        "command": " ".join(["python -m bench.openb", *sys.argv[1:]]),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": version("numpy")},
        "trace": trace,
        "seeds": [seeds[0], seeds[-1]],
        "policies": {
            policy: summary([run for run in runs if run["policy"] == policy])
            | {"published_at_100_percent": _at(published["unallocated_percent"], trace, policy, at_100)}
            for policy in policies
        },
        "runs": runs,
    }


def _run(trace: str, setting: Setting) -> dict[str, Any]:
    report = as_json(simulate(load_nodes(), load_pods(trace), setting), trace)
    if report["faults"] or report["refused_but_fits"]:
        raise AssertionError(f"{setting}: {report['faults'][:3]}, {report['refused_but_fits']} refused that fit")
    return report


def _at(published: dict[str, dict[str, list[float]]], trace: str, policy: str, column: int) -> float | None:
    figures = published.get(trace, {}).get(policy)
    return figures[column] if figures else None


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over the seeds, in percent, failed pods as means."""
    milestones = [at for at, ratio in runs[0]["unallocated_at"].items() if ratio is not None]
    classes = sorted({name for run in runs for name in run["failed_pods_at_100"]})
    ratios = {at: [100 * run["unallocated_at"][at] for run in runs] for at in milestones}
    return {
        "unallocated_percent": {at: round(statistics.fmean(values), 3) for at, values in ratios.items()},
        "sd_at_100": round(_spread(ratios["100"]), 3),
        "worst_at_100": round(max(ratios["100"]), 3),
        "failed_at_100": {
            name: round(statistics.fmean(run["failed_pods_at_100"].get(name, 0) for run in runs), 1) for name in classes
        },
        "ms_per_decision": round(statistics.median(run["ms_per_decision"] for run in runs), 3),
        "cpu_ms_per_decision": round(statistics.median(run["cpu_ms_per_decision"] for run in runs), 3),
        "pods_per_s": round(statistics.median(run["pods_per_s"] for run in runs)),
    }


def _spread(values: Iterable[float]) -> float:
    values = list(values)
    return statistics.stdev(values) if len(values) > 1 else 0.0


def show(report: dict[str, Any]) -> None:
    print(f"\n{report['trace']}, seeds {report['seeds'][0]}..{report['seeds'][1]}: unallocated GPU in %")
    print("policy        at 100    sd  worst published  at 130  failed   CPU ms")
    for policy, row in report["policies"].items():
        at = row["unallocated_percent"]
        published = row["published_at_100_percent"]
        print(
            f"{policy:<12} {at['100']:>7.2f} {row['sd_at_100']:>5.2f} {row['worst_at_100']:>6.2f} "
            f"{'' if published is None else format(published, '.2f'):>9} {at.get('130', float('nan')):>7.2f} "
            f"{sum(row['failed_at_100'].values()):>7.0f} {row['cpu_ms_per_decision']:>8.3f}"
        )
    if report["trace"] == "default":
        for line in verdicts(report["policies"]):
            print(line)


def verdicts(policies: dict[str, Any]) -> list[str]:
    """Return one line for each target that these runs can judge."""
    lines = []
    for policy, aim, spread in TARGETS:
        if policy in policies:
            found = policies[policy]["unallocated_percent"]["100"]
            is_met = found <= aim if spread is None else abs(found - aim) <= spread
            wanted = f"<= {aim}" if spread is None else f"{aim} +- {spread}"
            lines.append(f"{'met   ' if is_met else 'MISSED'} {policy}: {found:.2f} %, wanted {wanted} %")
    if OURS in policies:
        found = policies[OURS]["cpu_ms_per_decision"]
        lines.append(
            f"{'met   ' if found <= MS_PER_DECISION else 'MISSED'} {OURS}: {found:.3f} ms of one core per decision, "
            f"wanted <= {MS_PER_DECISION:g}"
        )
    return lines


if __name__ == "__main__":
    main()
