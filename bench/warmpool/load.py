"""What deciding costs: 500 pools that have learnt for ten days, in time of one core and in memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from time import process_time

import numpy as np

from warmpool.size.rule import Learnt
from warmpool.values import HitRate, PoolSpec, Shape

POOLS = 500
_DAYS = 10
_MINUTES = 90  # more than the hour in which every pool has its hourly work once


def measure() -> dict[str, float]:
    """Return it, measured in a process of its own."""
    told = subprocess.run([sys.executable, "-m", "bench.warmpool.load"], capture_output=True, text=True, check=True)
    rounds_s, most_s, rss_mb, stored = told.stdout.split()
    return {
        "pools": POOLS,
        "round_median_s": float(rounds_s),
        "round_slowest_s": float(most_s),
        "rss_mb": float(rss_mb),
        "stored_bytes": float(stored),
    }


def _spec(number: int) -> PoolSpec:
    return PoolSpec(name=f"pool-{number}", shape=Shape(), max_nodes=100, objective=HitRate(goal_ratio=0.99))


def main() -> None:
    random = np.random.default_rng(1)
    teacher = Learnt(_spec(0))
    now_s = 60.0 * 28_000_000
    for _ in range(_DAYS * 1440):
        _minute(teacher, now_s, int(random.poisson(0.5)))
        now_s += 60.0
    stored = teacher.stored()
    pools = [Learnt(_spec(number), stored) for number in range(POOLS)]
    counts = random.poisson(0.5, (_MINUTES, POOLS))
    rounds_s = []
    for row in counts:
        begin = process_time()
        for pool, count in zip(pools, row, strict=True):
            _minute(pool, now_s, int(count))
        rounds_s.append(process_time() - begin)
        now_s += 60.0
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    print(f"{np.median(rounds_s):.4f} {max(rounds_s):.4f} {rss_mb:.1f} {len(pools[0].stored())}")


def _minute(pool: Learnt, now_s: float, draws: int) -> None:
    if draws:
        pool.drew(now_s, draws, 0)
    pool.pass_to(now_s + 60.0, 20, is_known=True)
    pool.size(now_s + 60.0, 0)


if __name__ == "__main__":
    main()
