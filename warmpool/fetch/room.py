"""How much of a disk may be filled: the free space less a reserve, shared by all files of one run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warmpool.fetch.errors import NoRoom

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


class Room:
    """Keeps account of what files in progress will still write.

    Args:
        reserve_bytes: What stays free on the disk, whatever happens.
    """

    def __init__(self, reserve_bytes: int) -> None:
        self._reserve_bytes = reserve_bytes
        self._promised: dict[int, int] = {}

    @contextmanager
    def taken(self, folder: Path, need_bytes: int) -> Iterator[None]:
        """Hold room for a file until it is written or given up.

        The account is the careful one: a promise is counted whole until its file is finished, although a part of it is
        already gone from the free space.

        Raises:
            NoRoom: It would go into the reserve.
        """
        device = folder.stat().st_dev
        promised = self._promised.get(device, 0)
        free = self._free_bytes(folder)
        if free - promised - need_bytes < self._reserve_bytes:
            raise NoRoom(
                f"{folder}: needs {amount(need_bytes)} more, but {amount(free)} are free, of which"
                f" {amount(self._reserve_bytes)} stay free"
                + (f" and {amount(promised)} are promised to files under way" if promised else "")
            )
        self._promised[device] = promised + need_bytes
        try:
            yield
        finally:
            self._promised[device] -= need_bytes

    def check_for(self, folder: Path, need_bytes: int) -> None:
        """Look whether all of it would find room, before the first byte.

        Raises:
            NoRoom: It would go into the reserve.
        """
        with self.taken(folder, need_bytes):
            pass

    def check(self, folder: Path) -> None:
        """Look again while writing, because others fill the disk too.

        Raises:
            NoRoom: The reserve is being eaten.
        """
        free = self._free_bytes(folder)
        if free < self._reserve_bytes:
            raise NoRoom(f"{folder}: {amount(free)} are free, and {amount(self._reserve_bytes)} must stay free")

    @staticmethod
    def _free_bytes(folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize


def amount(size_bytes: float) -> str:
    """Return bytes for people: 1.5 GiB."""
    for name, unit in _UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes:.0f} B"
