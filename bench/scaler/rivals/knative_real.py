"""Knative's pod autoscaler itself: its own Go packages, in a process of its own, one for each run."""

from __future__ import annotations

import contextlib
import subprocess
import weakref
from pathlib import Path

from bench.scaler.rivals.knative import TICK_S
from bench.scaler.rivals.kpa_program import RivalError
from bench.scaler.rivals.seen import bounded, requests
from scaler.seen import Fleet, Sample

_END_S = 5.0


class RealKnative:
    """The same rival as `knative.Knative`, decided by knative.dev/serving v0.48.0.

    It hands over each second's requests and asks every 2 s; the program ends with this object.
    """

    period_s = TICK_S

    def __init__(self, target: float, slots: float, start_s: float, maximum: int, *, program: Path) -> None:
        """Take the shared target; the program starts with the first second, because it then asks for the ready pods."""
        self._arguments = [str(program), f"-target={target!r}", f"-total={slots!r}"]
        self._maximum = maximum
        self._process: subprocess.Popen[bytes] | None = None
        self._began_s = 0.0
        self._lines: list[bytes] = []
        self._wanted: int | None = None

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Keep one second for the next question; an unknown load is not recorded."""
        self._begun(sample.at_s, fleet)
        load = requests(sample)
        if load is not None:
            self._lines.append(b"s %r %r\n" % (sample.at_s - self._began_s, load))

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted; the last answer where Knative says that its result is not valid.

        Raises:
            RivalError: The program broke off or did not understand.
        """
        process = self._begun(now_s, fleet)
        self._lines.append(b"d %r %d\n" % (now_s - self._began_s, fleet.ready))
        answer = _asked(process, b"".join(self._lines))
        self._lines.clear()
        if answer != "hold":
            self._wanted = _desired(answer)
        return bounded(fleet.replicas if self._wanted is None else self._wanted, self._maximum)

    def _begun(self, now_s: float, fleet: Fleet) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._began_s = now_s
            self._process = subprocess.Popen(
                [*self._arguments, f"-ready={fleet.ready}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            weakref.finalize(self, _end, self._process)
        return self._process


def _asked(process: subprocess.Popen[bytes], lines: bytes) -> str:
    if process.stdin is None or process.stdout is None:
        raise RivalError("Knative's autoscaler was started without pipes")
    try:
        process.stdin.write(lines)
        process.stdin.flush()
        answer = process.stdout.readline().decode().strip()
    except OSError as error:
        raise RivalError(f"Knative's autoscaler broke off: {error}") from error
    if not answer:
        raise RivalError(f"Knative's autoscaler broke off with exit status {process.poll()}")
    return answer


def _desired(answer: str) -> int:
    """Return the first word of "DESIRED EXCESS-BURST-CAPACITY"."""
    try:
        return int(answer.split()[0])
    except ValueError as error:
        raise RivalError(f"Knative's autoscaler did not understand: {answer}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the program end at the end of its input, and see to it that it does."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
