"""Cut the published traces down to what the bench replays.

    python -m bench.scaler.reduce FOLDER

FOLDER holds the published traces (NOTICE names them) as gzip CSV: World Cup and NASA as requests per minute, ServeGen
as one rate column a client with their total, Azure and Mooncake per request. Writes bench/scaler/traces/; the same
input gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

TRACES = Path(__file__).parent / "traces"
LEAD_IN = pd.Timedelta(minutes=5)
WINDOW = pd.Timedelta(hours=12)
# Windows of 12 h: the days on which the rules were tuned, then others.
WEB = {
    "worldcup98_per_minute": ("minute_utc", ("1998-06-10T12:00", "1998-06-14T12:00", "1998-07-08T12:00")),
    "nasa_http_1995_per_minute": ("minute_local", ("1995-07-13T06:00", "1995-07-20T06:00")),
}
SERVEGEN_DAYS = (9, 11)  # counted from 1; the first 12 h of each
SERVEGEN_STEP = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    TRACES.mkdir(exist_ok=True)
    for name, (column, begins) in WEB.items():
        counts = pd.read_csv(folder / f"{name}.csv.gz", index_col=column)["requests"]
        counts.index = pd.to_datetime(counts.index)
        _write(name, ["minute", "requests"], _web_rows(counts, begins))
    for pool in ("large", "mid", "small"):
        table = pd.read_csv(folder / f"servegen_m_{pool}_rates_10min.csv.gz")
        header = ["t_s", "rate_rps", "cv_of_all_windows"]
        _write(f"servegen_{pool}_per_10_minutes", header, _servegen_rows(table))
    for kind in ("code", "conv"):
        table = pd.read_csv(folder / f"azure_llm_2023_{kind}.csv.gz")
        came = pd.to_datetime(table["TIMESTAMP"])
        t_s = (came - came.iloc[0]).dt.total_seconds().round(3)
        _write(
            f"azure_llm_{kind}_2023", _TOKENS, zip(t_s, table["ContextTokens"], table["GeneratedTokens"], strict=True)
        )
    table = pd.read_csv(folder / "mooncake_conversation.csv.gz")
    rows = zip(table["timestamp_ms"] / 1000, table["input_length"], table["output_length"], strict=True)
    _write("mooncake_conversation", _TOKENS, rows)
    shutil.copyfile(folder / "worldcup98_COPYRIGHT.txt", TRACES / "worldcup98_COPYRIGHT.txt")


_TOKENS = ["t_s", "input_tokens", "output_tokens"]


def _web_rows(counts: pd.Series, begins: Iterable[str]) -> Iterable[tuple[str, int]]:
    for begin in map(pd.Timestamp, begins):
        part = counts[(counts.index >= begin - LEAD_IN) & (counts.index < begin + WINDOW)]
        yield from ((minute.strftime("%Y-%m-%dT%H:%M"), int(count)) for minute, count in part.items())


def _servegen_rows(table: pd.DataFrame) -> Iterable[tuple[int, float, float]]:
    cv = round(float(table["rate_weighted_cv"].median()), 4)
    for day in SERVEGEN_DAYS:
        begin_s = (day - 1) * 86_400
        part = table[(table["t_s"] >= begin_s - SERVEGEN_STEP) & (table["t_s"] < begin_s + WINDOW.total_seconds())]
        yield from ((int(t_s), rate, cv) for t_s, rate in zip(part["t_s"], part["total_rps"], strict=True))


def _write(name: str, header: list[str], rows: Iterable[tuple[object, ...]]) -> None:
    text = "\n".join([",".join(header), *(",".join(str(value) for value in row) for row in rows)]) + "\n"
    (TRACES / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
