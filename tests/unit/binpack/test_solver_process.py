"""The solver's child process: answers, lateness, death, and ending with its parent."""

import asyncio
import os
import signal
import sys
from dataclasses import replace

import pytest
import uvloop

from binpack.solver.instance import Budget
from binpack.solver.process import SolverProcess
from binpack.solver.solve import solve
from fleet.plan import SolveStatus
from tests.support.questions import two_pods_two_nodes

TINY = two_pods_two_nodes()
PATIENT = Budget(wall_s=60.0)
IMPATIENT = Budget(wall_s=0.3)

READY = "import sys; o = sys.stdout.buffer; o.write(bytes(4)); o.flush(); i = sys.stdin.buffer; "
SLEEPS = READY + "i.read()"
DIES_WHEN_ASKED = READY + "i.read(4)"
BABBLES = READY + "i.read(4); o.write(bytes([0, 0, 0, 1, 193])); o.flush(); i.read()"
ANSWERS_WHEN_TOLD = """
import signal, sys
from binpack.solver import wire
from binpack.solver.question import Answer
from fleet.plan import SolveStatus
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
out = sys.stdout.buffer
out.write(wire.READY)
out.flush()
for name in ("first", "second"):
    sys.stdin.buffer.read(wire.body_bytes(sys.stdin.buffer.read(wire.HEADER_BYTES)))
    signal.sigwait({signal.SIGUSR1})
    out.write(wire.framed(wire.Reply(answer=Answer(status=SolveStatus.UNKNOWN, detail=name))))
    out.flush()
"""
NEVER_UP = "import sys; sys.exit(3)"
SLOW_TO_START = "import sys; sys.stdin.buffer.read()"


def child(script):
    return (sys.executable, "-c", script)


class Clock:
    """Stands still until told."""

    def __init__(self):
        self.at_s = 0.0

    def now_s(self):
        return self.at_s

    def monotonic_s(self):
        return self.at_s

    async def sleep(self, seconds):
        self.at_s += seconds


async def test_the_real_child_answers_again_and_again():
    solver = SolverProcess()
    try:
        for _ in range(2):
            answer = await solver.solve(TINY, PATIENT)
            assert answer == solve(TINY, PATIENT)
            assert answer.status is SolveStatus.OPTIMAL
            assert len(answer.seats) == 2
        assert (solver.starts, solver.lates, solver.deaths) == (1, 0, 0)
    finally:
        await solver.close()


async def test_an_error_inside_the_child_is_told_and_the_child_lives_on():
    broken = replace(TINY, unplaced_price=2**60)
    solver = SolverProcess()
    try:
        answer = await solver.solve(broken, PATIENT)
        assert answer.status is SolveStatus.LATE_OR_DEAD
        assert "Error" in answer.detail
        assert (await solver.solve(TINY, PATIENT)).status is SolveStatus.OPTIMAL
        assert solver.starts == 1
    finally:
        await solver.close()


async def test_a_late_child_is_left_to_finish_and_its_answer_taken_for_nobody_elses():
    solver = SolverProcess(Clock(), child(ANSWERS_WHEN_TOLD))
    try:
        await solver.start()
        pid = solver.pid
        assert (await solver.solve(TINY, IMPATIENT)).status is SolveStatus.LATE_OR_DEAD
        assert (solver.lates, solver.deaths, solver.pid) == (1, 0, pid)
        later = asyncio.create_task(solver.solve(TINY, PATIENT))
        os.kill(pid, signal.SIGUSR1)  # it answers the first question: "first"; then the second: "second"
        await asyncio.wait({later}, timeout=0.3)
        os.kill(pid, signal.SIGUSR1)
        assert (await later).detail == "second"
        assert solver.starts == 1
    finally:
        await solver.close()


async def test_a_child_that_hangs_is_killed_and_replaced():
    clock = Clock()
    solver = SolverProcess(clock, child(SLEEPS))
    try:
        await solver.start()
        pid = solver.pid
        assert (await solver.solve(TINY, IMPATIENT)).status is SolveStatus.LATE_OR_DEAD
        assert (await solver.solve(TINY, IMPATIENT)).status is SolveStatus.LATE_OR_DEAD
        assert (solver.lates, solver.deaths, solver.pid) == (2, 0, pid)
        clock.at_s += 31.0
        assert (await solver.solve(TINY, IMPATIENT)).status is SolveStatus.LATE_OR_DEAD
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert (solver.starts, solver.deaths) == (2, 1)
    finally:
        await solver.close()


async def test_a_child_that_is_still_starting_is_not_killed_for_it():
    solver = SolverProcess(Clock(), child(SLOW_TO_START))
    try:
        assert (await solver.solve(TINY, IMPATIENT)).status is SolveStatus.LATE_OR_DEAD
        pid = solver.pid
        assert (await solver.solve(TINY, IMPATIENT)).status is SolveStatus.LATE_OR_DEAD
        assert (solver.pid, solver.starts, solver.lates, solver.deaths) == (pid, 1, 2, 0)
    finally:
        await solver.close()


@pytest.mark.parametrize("script", [DIES_WHEN_ASKED, BABBLES, NEVER_UP])
async def test_a_dead_or_mad_child_costs_one_answer(script):
    solver = SolverProcess(Clock(), child(script))
    try:
        answer = await solver.solve(TINY, PATIENT)
        assert answer.status is SolveStatus.LATE_OR_DEAD
        assert answer.detail
        assert solver.deaths == 1
        assert solver.pid is None
    finally:
        await solver.close()


async def test_a_command_that_does_not_exist_is_no_exception():
    solver = SolverProcess(Clock(), ("/nowhere/solver",))
    assert (await solver.solve(TINY, PATIENT)).status is SolveStatus.LATE_OR_DEAD
    await solver.close()


async def test_a_child_that_died_while_idle_is_replaced_before_the_question():
    solver = SolverProcess(Clock())
    try:
        await solver.start()
        os.kill(solver.pid, signal.SIGKILL)
        await solver._child.wait()
        assert (await solver.solve(TINY, PATIENT)).status is SolveStatus.OPTIMAL
        assert (solver.starts, solver.deaths) == (2, 1)
    finally:
        await solver.close()


async def test_repeated_failures_are_paced_by_the_clock():
    clock = Clock()
    solver = SolverProcess(clock, child(NEVER_UP))
    for _ in range(6):
        await solver.solve(TINY, PATIENT)
    assert solver.starts == 2
    clock.at_s += 1.0
    await solver.solve(TINY, PATIENT)
    assert solver.starts == 3
    clock.at_s += 1.0
    await solver.solve(TINY, PATIENT)
    assert solver.starts == 3
    await solver.close()


async def test_questions_queue_up_and_nobody_gets_the_answer_of_another():
    other = replace(TINY, seats=TINY.seats[:1])
    solver = SolverProcess()
    try:
        answers = await asyncio.gather(*(solver.solve(one, PATIENT) for one in (TINY, other, TINY, other)))
        assert answers == [solve(one, PATIENT) for one in (TINY, other, TINY, other)]
        assert answers[0].draft_cost != answers[1].draft_cost
    finally:
        await solver.close()


async def test_the_loop_runs_on_while_the_child_thinks():
    solver = SolverProcess(Clock(), child(SLEEPS))
    try:
        await solver.start()
        asked = asyncio.create_task(solver.solve(TINY, IMPATIENT))
        turns = 0
        while not asked.done():
            await asyncio.wait({asked}, timeout=0.005)
            turns += 1
        assert turns > 10
    finally:
        await solver.close()


async def test_a_closed_solver_answers_and_starts_nothing():
    solver = SolverProcess(Clock(), child(SLEEPS))
    await solver.start()
    await solver.close()
    assert (await solver.solve(TINY, PATIENT)).status is SolveStatus.LATE_OR_DEAD
    assert (solver.pid, solver.starts) == (None, 1)


def test_it_runs_under_uvloop():
    async def main():
        solver = SolverProcess()
        try:
            assert (await solver.solve(TINY, PATIENT)).status is SolveStatus.OPTIMAL
            solver._command = child(SLEEPS)
            os.kill(solver.pid, signal.SIGKILL)
            await solver._child.wait()
            await solver.start()
            assert (await solver.solve(TINY, IMPATIENT)).status is SolveStatus.LATE_OR_DEAD
        finally:
            await solver.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def test_the_child_ends_when_its_parent_is_killed():
    """The child sees the end of its pipe, whatever ended the parent."""
    script = (
        "import asyncio, sys\n"
        "from binpack.solver.process import SolverProcess\n"
        "async def main():\n"
        "    solver = SolverProcess()\n"
        "    await solver.start()\n"
        "    print(solver.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    pid = int(await parent.stdout.readline())
    watched = os.pidfd_open(pid)
    try:
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(watched, gone.set)
        parent.kill()
        await parent.wait()
        await asyncio.wait_for(gone.wait(), 10.0)
    finally:
        asyncio.get_running_loop().remove_reader(watched)
        os.close(watched)
