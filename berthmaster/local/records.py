"""What was started, written down so that any later command can go on from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from berthmaster.local.components import Options
from fleet.errors import LocalClusterError


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One cluster: written before its first process.

    Attributes:
        ports: Loopback port by component.
        options: What it is made of.
        binaries: Path by program.
        kubernetes: Version that fake nodes show.
        is_complete: All components have answered once, and pods were admitted.
    """

    ports: dict[str, int]
    options: Options
    binaries: dict[str, str]
    kubernetes: str
    is_complete: bool = False


def read(path: Path) -> Record | None:
    """Return the record, None if there is none.

    Raises:
        LocalClusterError: It cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=Record)
    except msgspec.DecodeError as error:
        raise LocalClusterError(
            f"{path} cannot be read ({error}): end the cluster with berthmaster down --name {path.parent.name}"
        ) from error


def write(path: Path, value: object) -> None:
    """Write a value as JSON so that a reader sees all of it or nothing."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(msgspec.json.encode(value))
    temporary.replace(path)


def promised_ports(home: Path) -> set[int]:
    """Return the ports that the records of all clusters under `home` name."""
    found: set[int] = set()
    for path in home.glob("*/cluster.json"):
        try:
            record = read(path)
        except (LocalClusterError, OSError):
            continue  # broken: `down` of that cluster says so
        if record is not None:
            found.update(record.ports.values())
    return found
