"""The partial file and its journal on disk: nothing has the final name before all of it is there, right and synced.

Order is everything here. Data is synced before the journal that speaks of it is written; the journal of an older try
is gone before a new partial file exists; the rename comes after the last sync. So a process or a machine may stop
between any two calls.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from warmpool.fetch import journal
from warmpool.fetch.errors import Busy, DownloadError, NoRoom
from warmpool.fetch.journal import Journal
from warmpool.fetch.names import JOURNAL_SUFFIX, PART_SUFFIX
from warmpool.fetch.spans import Span

_READ_BYTES = 2**22
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Partial:
    """One unfinished file, locked against other processes while it is open."""

    def __init__(self, target: Path, descriptor: int) -> None:
        self._target = target
        self._descriptor = descriptor
        self._part = beside(target, PART_SUFFIX)
        self._journal = beside(target, JOURNAL_SUFFIX)
        self._identity: str | None = None
        self._size_bytes = 0

    def begin(self, identity: str | None, size_bytes: int | None) -> tuple[Span, ...]:
        """Make ready for this content and return what of it is already there.

        Args:
            identity: See `journal.identity`; None: nothing is kept for later.
            size_bytes: Of the whole, None where unknown.
        """
        with _told(self._target):
            found = os.fstat(self._descriptor)
            done = journal.resumable(
                self._read(),
                wanted=identity,
                size_bytes=size_bytes or 0,
                inode=found.st_ino,
                partial_bytes=found.st_size,
            )
            if not done:
                self._forget()
                os.ftruncate(self._descriptor, 0)
                os.ftruncate(self._descriptor, size_bytes or 0)
            self._identity = identity
            self._size_bytes = size_bytes or 0
        return done

    def write(self, content: memoryview, position: int) -> None:
        """Write all of it there.

        Raises:
            NoRoom: The disk is full.
        """
        with _told(self._target):
            while content:
                written = os.pwrite(self._descriptor, content, position)
                content, position = content[written:], position + written

    def keep(self, done: tuple[Span, ...]) -> None:
        """Make these bytes survive a stop: sync, then say so in the journal."""
        if self._identity is None:
            return
        with _told(self._target):
            os.fdatasync(self._descriptor)
            told = Journal(
                identity=self._identity,
                size_bytes=self._size_bytes,
                inode=os.fstat(self._descriptor).st_ino,
                done=done,
            )
            write_whole(self._journal, journal.encoded(told))

    def hashed(self, digest: hashlib._Hash, span: Span) -> None:
        """Feed these bytes, read back from the file, to the digest."""
        buffer = memoryview(bytearray(min(_READ_BYTES, max(1, span.size_bytes))))
        position = span.start
        with _told(self._target):
            while position < span.end:
                count = os.preadv(self._descriptor, [buffer[: span.end - position]], position)
                if not count:
                    raise DownloadError(f"{self._target}: its partial file was cut short by somebody else")
                digest.update(buffer[:count])
                position += count

    def finish(self) -> None:
        """Give the file its name; what had it before is replaced."""
        with _told(self._target):
            os.fsync(self._descriptor)
            os.rename(self._part, self._target)
            sync_folder(self._target.parent)
            _unlink_journal(self._target)

    def reset(self) -> None:
        """Throw away what is there; the lock stays."""
        with _told(self._target):
            self._forget()
            os.ftruncate(self._descriptor, 0)

    def tidy(self) -> None:
        """Remove the partial file if nothing says what is in it: it could never be gone on with."""
        with suppress(OSError):
            if not self._journal.exists() and os.stat(self._part).st_ino == os.fstat(self._descriptor).st_ino:
                os.unlink(self._part)

    def allocated_bytes(self) -> int:
        """Return what the partial file already holds of the disk."""
        return os.fstat(self._descriptor).st_blocks * 512

    def _forget(self) -> None:
        if _unlink_journal(self._target):
            sync_folder(self._target.parent)

    def _read(self) -> Journal | None:
        try:
            with self._journal.open("rb") as file:
                return journal.decoded(file.read(journal.LARGEST_BYTES + 1))
        except OSError:
            return None


@contextmanager
def opened(target: Path) -> Iterator[Partial]:
    """Open and lock the partial file of a target, made where there is none.

    Raises:
        Busy: Another process has it.
        NoRoom, DownloadError: The folder does not take it.
    """
    with _told(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise DownloadError(f"{target}: is a folder")
        descriptor = _locked(target)
    partial = Partial(target, descriptor)
    try:
        yield partial
    finally:
        try:
            partial.tidy()
        finally:
            os.close(descriptor)


def _locked(target: Path) -> int:
    part = beside(target, PART_SUFFIX)
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us may have given this very file its final name: that one is not ours to write.
            with suppress(FileNotFoundError):
                if os.stat(part).st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise Busy(f"{target}: another process is fetching it") from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def sweep(target: Path) -> None:
    """Remove what a stop between the last two calls left: a journal whose partial file has its final name."""
    if not beside(target, PART_SUFFIX).exists():
        with _told(target):
            _unlink_journal(target)


def _unlink_journal(target: Path) -> bool:
    path = beside(target, JOURNAL_SUFFIX)
    is_gone = False
    for name in (path, _fresh(path)):
        with suppress(FileNotFoundError):
            os.unlink(name)
            is_gone = True
    return is_gone


def _fresh(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def beside(target: Path, suffix: str) -> Path:
    """Return the hidden name next to a target."""
    return target.with_name(f".{target.name}{suffix}")


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that it is there whole or not at all, after a crash too."""
    fresh = _fresh(path)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(fresh, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str | None:
    """Return the checksum of a regular file, None where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DownloadError(f"{path}: {error.strerror}") from error


@contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = NoRoom if error.errno in _FULL else DownloadError
        raise kind(f"{target}: {error.strerror or error}") from error
