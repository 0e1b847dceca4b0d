#!/usr/bin/python3
"""Failures of real ranks under mpirun: exit status, one cause, in time, no process left.

usage: failure.py MPIRUN MPI_JOB MPI_JOB_INTRODUCED [NAME...]
"""
import concurrent.futures
import json
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running  # noqa: E402

running.MPIRUN, JOB, INTRODUCED = sys.argv[1:4]
# A sanitizer shall not turn a crash into an exit; what MPI never frees is not ours.
os.environ["ASAN_OPTIONS"] = "handle_segv=0:detect_leaks=0"
TIMEOUT = 3.0  # of the job, in seconds
AT_ONCE = 4    # most of the time a job waits


class Job:
    """One run of mpi_job, over when the object is there.  poke(run) does something to it once it has begun."""

    def __init__(self, ranks, *mishap, timeout=TIMEOUT, poke=None, alone=False, env=None, program=JOB):
        with tempfile.TemporaryDirectory() as folder:
            words = [str(timeout), folder, *map(str, mishap)]
            command = [program, *words] if alone else running.mpirun_command(ranks, words, program=[program])
            run = running.Run(command, extra_env=env)
            try:
                if poke:
                    poke(run)
            except AssertionError:
                run.end()
                raise
            result = run.finish(60)
            self.code, self.seconds, self.left = result.code, result.seconds, result.left
            self.output = result.summary()
            self.lines = [line for line in (result.out + result.err).splitlines() if line.startswith("ferry:")]
            self.cause = None
            path = os.path.join(folder, "cause.json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    self.cause = json.load(file)
            self.files = sorted(os.listdir(folder))

    def check(self, code, parts, within, lines=1):
        problems = []
        if self.code != code:
            problems.append(f"exit status {self.code}, expected {code}")
        if lines is not None and len(self.lines) != lines:
            problems.append(f"{len(self.lines)} lines, expected {lines}")
        for part in parts:
            if not any(part in line for line in self.output.splitlines()):
                problems.append(f"no line with {part!r}")
        if self.seconds > within:
            problems.append(f"took {self.seconds:.1f} s, allowed {within}")
        if self.left:
            problems.append(f"processes left: {self.left}")
        if problems:
            raise AssertionError("; ".join(problems) + "\n" + self.output)


def a_good_run_ends_well():
    for ranks in 1, 2, 3, 4:
        run = Job(ranks)
        run.check(0, [], 15, lines=0)
        assert run.files == [f"rank-{rank:06d}.recorder" for rank in range(ranks)], run.files


def a_difference_is_told_once():
    run = Job(4, 1, "differ")
    run.check(6, ["mesh.tensor: 2 on ranks 0, 2, 3; 4 on rank 1"], 10)
    assert run.cause["status"] == "mismatch", run.cause


def a_failed_start_is_told_once():  # B40, B41
    for rank in 0, 3:
        run = Job(4, rank, "bad-file")
        run.check(3, [f"rank {rank}: x.yaml:3:5: unknown key meesh"], 10)


def a_failure_in_a_step_is_told_once():  # B41
    run = Job(3, 2, "fail")
    run.check(9, ["checkpoint.bin: No space left on device"], 10)


def a_failing_producer_is_everybodys_cause():
    for rank in 0, 1:
        run = Job(2, rank, "producer")
        run.check(4, [f"rank {rank}: ", "executor cpu/0: token 7 is not finite"], 10)
        assert run.cause["status"] == "model" and run.cause["exit_code"] == 4, run.cause


def a_killed_rank_is_told_by_its_keeper():  # B43
    for rank in 0, 2:
        run = Job(3, rank, "kill")
        run.check(8, [f"rank {rank} on ", "killed by SIGKILL", "its last operation: all_reduce_sum on world/0"], 10)
        assert run.cause["rank"] == rank and run.cause["exit_code"] == 8, run.cause
        assert "all_reduce_sum on world/0" in run.cause["last_operation"], run.cause


def a_rank_that_dies_while_it_reads_what_was_lent_is_told():
    run = Job(3, 1, "lent-kill")
    run.check(8, ["rank 1 on ", "killed by SIGKILL", "its last operation: all_gather_even on world/0"], 10)
    assert run.cause["rank"] == 1, run.cause


def a_rank_that_stops_while_it_reads_what_was_lent_is_named():
    run = Job(3, 1, "lent-stop")
    run.check(7, ["rank 1 has been silent"], TIMEOUT + 10)
    assert run.cause["rank"] == 1, run.cause


def aborts_and_crashes_have_their_names():
    for mishap, name in ("abort", "SIGABRT"), ("crash", "SIGSEGV"):
        run = Job(2, 1, mishap)
        run.check(8, [f"killed by {name}"], 10)


def a_stopped_rank_is_named_by_the_survivors():
    for rank in 0, 1:
        run = Job(3, rank, "stop")
        run.check(7, [f"rank {rank} has been silent"], TIMEOUT + 10)
        assert run.cause["rank"] == rank and run.cause["exit_code"] == 7, run.cause
        assert "sequence 9, done" in run.cause["last_operation"], run.cause


def workers(run):
    """{rank: (keeper, worker)}, once all of its two ranks are there."""
    if not run.until(lambda: len(run.ranks(JOB)) == 2):
        raise AssertionError("two ranks have not come: " + run.text(run.err))
    return run.ranks(JOB)


def pause_a_worker(run):
    worker = workers(run)[1][1]
    os.kill(worker, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(worker, signal.SIGCONT)


def a_rank_stopped_for_less_than_the_timeout_goes_on():
    run = Job(2, timeout=6, poke=pause_a_worker)
    run.check(0, [], 20, lines=0)


def a_hanging_rank_is_named():
    run = Job(3, 1, "hang")
    run.check(7, ["rank 1 has stood still", "(step 10)"], TIMEOUT + 10)


def a_rank_that_never_comes_is_named():
    run = Job(4, 3, "never-comes")
    run.check(7, ["rank 3 has stood still"], TIMEOUT + 10)


def a_rank_that_dies_at_the_introduction_of_its_host_is_told():
    run = Job(3, 1, "lost-init", program=INTRODUCED, env={"INTRODUCTION": f"1 {int(signal.SIGKILL)}"})
    run.check(8, ["rank 1 on ", "killed by SIGKILL"], 10)


def a_rank_that_stops_at_the_introduction_of_its_host_ends_the_job():
    run = Job(3, 1, "lost-init", program=INTRODUCED, env={"INTRODUCTION": f"1 {int(signal.SIGSTOP)}"})
    run.check(7, ["MPI_Init has not ended within 3.0 s (startup_timeout)"], TIMEOUT + 10, lines=None)


def a_rank_that_never_starts_mpi_ends_the_job():
    run = Job(2, 1, "late-init")
    run.check(7, ["MPI_Init has not ended within 3.0 s (startup_timeout)"], TIMEOUT + 10, lines=None)


def a_clean_close_waits_no_longer_than_the_timeout():
    run = Job(3, 1, "late-close")
    run.check(7, ["not every rank has come to the end of MPI within 11.0 s"], TIMEOUT + 15, lines=None)
    assert run.seconds >= TIMEOUT, run.seconds


def codes_above_125_become_1():
    run = Job(2, 1, "exit-200")
    run.check(1, [], 10, lines=0)


def hanging(run):
    """Both ranks are there and have begun."""
    workers(run)
    time.sleep(1)


def a_stop_signal_is_no_cause():
    def stop(run):
        hanging(run)
        os.kill(run.process.pid, signal.SIGTERM)

    run = Job(2, 1, "hang", timeout=30, poke=stop)
    assert run.code != 0 and not run.lines and not run.left and run.seconds < 10, run.output


def a_worker_dies_with_its_keeper():
    def kill_a_keeper(run):
        hanging(run)
        keeper, worker = workers(run)[0]
        os.kill(worker, signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        deadline = time.monotonic() + running.PATIENCE
        while worker in run.pids() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert worker not in run.pids(), "the stopped worker has outlived its keeper"

    run = Job(2, 1, "hang", timeout=30, poke=kill_a_keeper)
    assert run.code != 0 and not run.left and run.seconds < 15, run.output


def singletons_are_told():
    """Two processes that believe to be ranks of a starter whose MPI is another one."""
    run = Job(1, alone=True, env={"PMI_RANK": "1", "PMI_SIZE": "2"})
    run.check(5, ["mpiexec started 2 processes, but each of them is an MPI world of its own"], 10)


def a_choice_that_is_none_is_told():
    run = Job(2, alone=True, env={"FERRY_MPI_SHARED": "no"})
    run.check(5, ["FERRY_MPI_SHARED is 'no': say off, and ranks of one host"], 10)


TESTS = [
    a_choice_that_is_none_is_told,
    a_good_run_ends_well,
    a_difference_is_told_once,
    a_failed_start_is_told_once,
    a_failure_in_a_step_is_told_once,
    a_failing_producer_is_everybodys_cause,
    a_killed_rank_is_told_by_its_keeper,
    a_rank_that_dies_while_it_reads_what_was_lent_is_told,
    a_rank_that_stops_while_it_reads_what_was_lent_is_named,
    aborts_and_crashes_have_their_names,
    a_stopped_rank_is_named_by_the_survivors,
    a_rank_stopped_for_less_than_the_timeout_goes_on,
    a_hanging_rank_is_named,
    a_rank_that_never_comes_is_named,
    a_rank_that_dies_at_the_introduction_of_its_host_is_told,
    a_rank_that_stops_at_the_introduction_of_its_host_ends_the_job,
    a_rank_that_never_starts_mpi_ends_the_job,
    a_clean_close_waits_no_longer_than_the_timeout,
    codes_above_125_become_1,
    a_stop_signal_is_no_cause,
    a_worker_dies_with_its_keeper,
    singletons_are_told,
]


def verdict(test):
    """What is to be printed of a test, and whether it failed."""
    begin = time.monotonic()
    try:
        test()
        words, failed = "ok", False
    except AssertionError as error:
        words, failed = f"FAILED: {error}", True
    return f"{test.__name__}: {words} ({time.monotonic() - begin:.1f} s)", failed


def main():
    wanted = sys.argv[4:]
    tests = [test for test in TESTS if not wanted or test.__name__ in wanted]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for words, bad in pool.map(verdict, tests):
            print(words, flush=True)
            failed += bad
    return 1 if failed else 0


sys.exit(main())
