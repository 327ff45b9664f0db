"""The openb trace as fleet values: the copies shipped with the package, or CSV files of the same columns."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from binpack.books import account
from binpack.state import NodeState
from fleet.device import WHOLE_MILLI, AskKind, Device, DeviceAsk
from fleet.errors import DecodeError
from fleet.labels import GPU_PRODUCT
from fleet.node import Node
from fleet.pod import Pod
from fleet.resources import Resources

MIB: Final = 2**20
_POD_SLOTS: Final = 10_000  # the published runs limit pods by resources alone
_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")  # gpu_spec may be left out
_TIME_COLUMNS: Final = ("creation_time", "deletion_time")


def load_nodes(source: str | Path = "openb") -> tuple[Node, ...]:
    """Return the nodes of a shipped list or of a CSV file, in file order.

    Args:
        source: "openb" (the 1,213 GPU nodes of the published runs), "openb-all" (310 CPU-only nodes more), or a path.

    Raises:
        DecodeError: The list does not exist, or a row cannot be read; the message names file, row and field.
    """
    name = {"openb": "nodes_gpu.csv.gz", "openb-all": "nodes_all.csv.gz"}.get(str(source))
    return tuple(_node(row) for row in _rows(source, name, _NODE_COLUMNS))


def load_pods(source: str | Path = "default") -> tuple[Pod, ...]:
    """Return the pods of a shipped trace or of a CSV file, in file order.

    Args:
        source: The name of a trace ("default", "gpuspec33", ...: see `traces`), or a path.

    Raises:
        DecodeError: The trace does not exist, or a row cannot be read; the message names file, row and field.
    """
    name = f"pods_{source}.csv.gz" if str(source) in traces() else None
    return tuple(_pod(row) for row in _rows(source, name, _POD_COLUMNS))


def load_lives(source: str | Path = "default") -> dict[str, float]:
    """Return by name how long the pods of a shipped trace or of a CSV file lived, from creation to deletion, seconds.

    Raises:
        DecodeError: The trace does not exist or carries no times, or a row cannot be read or ends before it begins.
    """
    name = f"pods_{source}.csv.gz" if str(source) in traces() else None
    lives: dict[str, float] = {}
    for row in _rows(source, name, ("name", *_TIME_COLUMNS)):
        created_s, deleted_s = (row.number(column, 2**40) for column in _TIME_COLUMNS)
        if deleted_s < created_s:
            raise DecodeError(f"{row.where}: deletion_time is before creation_time")
        lives[row.text("name")] = float(deleted_s - created_s)
    return lives


def traces() -> tuple[str, ...]:
    """Return the names of the shipped traces."""
    names = (entry.name for entry in resources.files("binpack").joinpath("data").iterdir())
    return tuple(sorted(n[5:-7] for n in names if n.startswith("pods_") and n.endswith(".csv.gz")))


def empty_state(node: Node) -> NodeState:
    """Return the node with nothing on it."""
    return account(node, ()).state


class _Row:
    """One row of a CSV file that names itself in every error."""

    def __init__(self, source: str, line: int, fields: Mapping[str, str]) -> None:
        self.where = f"{source} line {line}"
        self._fields = fields

    def text(self, column: str) -> str:
        return (self._fields.get(column) or "").strip()

    def number(self, column: str, most: int) -> int:
        text = self.text(column)
        try:
            value = int(text)
        except ValueError:
            raise DecodeError(f"{self.where}: {column} is {text!r}, wanted a whole number") from None
        if not 0 <= value <= most:
            raise DecodeError(f"{self.where}: {column} is {value}, wanted 0 to {most}")
        return value


def _rows(source: str | Path, shipped: str | None, columns: Iterable[str]) -> Iterator[_Row]:
    try:
        if shipped is not None:
            raw = resources.files("binpack").joinpath("data", shipped).read_bytes()
        else:
            raw = Path(source).read_bytes()
        text = gzip.decompress(raw).decode("utf-8") if raw[:2] == b"\x1f\x8b" else raw.decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        lines = list(enumerate(reader, start=2))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error) as error:
        raise DecodeError(f"{source}: cannot be read as CSV: {error}") from error
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise DecodeError(f"{source}: no column {', '.join(missing)}")
    names: set[str] = set()
    first = next(iter(columns))
    for line, fields in lines:
        row = _Row(str(source), line, fields)
        name = row.text(first)
        if not name or name in names:
            raise DecodeError(f"{row.where}: {first} is {'empty' if not name else f'{name!r} a second time'}")
        names.add(name)
        yield row


def _node(row: _Row) -> Node:
    model = row.text("model")
    count = row.number("gpu", 64)
    return Node(
        name=row.text("sn"),
        labels={GPU_PRODUCT: model} if model else {},
        allocatable=Resources(
            milli_cpu=row.number("cpu_milli", 2**40),
            memory_bytes=row.number("memory_mib", 2**40) * MIB,
            pod_slots=_POD_SLOTS,
        ),
        devices=tuple(Device(id=str(position), model=model) for position in range(count)),
        is_sharing=count > 0,
    )


def _pod(row: _Row) -> Pod:
    count = row.number("num_gpu", 64)
    milli = row.number("gpu_milli", WHOLE_MILLI)
    models = tuple(dict.fromkeys(model for model in row.text("gpu_spec").split("|") if model))
    ask: DeviceAsk | None = None
    if count and milli == WHOLE_MILLI:
        ask = DeviceAsk(kind=AskKind.CHOSEN, count=count, models=models)
    elif count and milli:
        ask = DeviceAsk(kind=AskKind.SHARE, count=count, milli_gpu=milli, models=models)
    elif count:
        raise DecodeError(f"{row.where}: gpu_milli is 0 though num_gpu is {count}")
    name = row.text("name")
    return Pod(
        uid=name,
        name=name,
        requests=Resources(
            milli_cpu=row.number("cpu_milli", 2**40),
            memory_bytes=row.number("memory_mib", 2**40) * MIB,
            pod_slots=1,
        ),
        ask=ask,
    )
