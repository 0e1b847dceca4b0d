#!/usr/bin/python3
"""Failures of real ranks under mpirun: exit status, one cause, in time, no process left.

usage: failure.py MPIRUN MPI_JOB [NAME...]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

MPIRUN, JOB = sys.argv[1:3]
for name in "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM":
    os.environ.setdefault(name, "1")
# A sanitizer shall not turn a crash into an exit; what MPI never frees is not ours.
os.environ["ASAN_OPTIONS"] = "handle_segv=0:detect_leaks=0"
TIMEOUT = 3.0  # of the job, in seconds


def descendants(pid):
    """Process ids below pid, from /proc."""
    parent = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parent[int(entry)] = int(stat.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                pass
    found, queue = [], [pid]
    while queue:
        queue = [child for child in parent if parent[child] in queue]
        found += queue
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Run:
    """One mpirun of mpi_job, over when the object is there."""

    def __init__(self, ranks, *mishap, timeout=TIMEOUT, poke=None, starter=None):
        with tempfile.TemporaryDirectory() as folder:
            command = starter if starter is not None else [MPIRUN, "--oversubscribe", "-n", str(ranks)]
            command = [*command, JOB, str(timeout), folder, *map(str, mishap)]
            begin = time.monotonic()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            time.sleep(0.3)
            if poke:
                poke(process.pid)
            self.family = descendants(process.pid)
            try:
                self.output = process.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                for pid in [process.pid, *descendants(process.pid)]:
                    os.kill(pid, signal.SIGKILL)
                self.output = "did not end within 60 s\n" + process.communicate()[0]
            self.seconds = time.monotonic() - begin
            self.code = process.returncode
            self.lines = [line for line in self.output.splitlines() if line.startswith("ferry:")]
            self.cause = None
            path = os.path.join(folder, "cause.json")
            if os.path.exists(path):
                with open(path) as file:
                    self.cause = json.load(file)
            self.files = sorted(os.listdir(folder))
        time.sleep(0.2)
        self.left = [pid for pid in self.family if alive(pid)]

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
        run = Run(ranks)
        run.check(0, [], 15, lines=0)
        assert run.files == [f"rank-{rank:06d}.recorder" for rank in range(ranks)], run.files


def a_difference_is_told_once():
    run = Run(4, 1, "differ")
    run.check(6, ["mesh.tensor: 2 on ranks 0, 2, 3; 4 on rank 1"], 10)
    assert run.cause["status"] == "mismatch", run.cause


def a_failed_start_is_told_once():  # B40, B41
    for rank in 0, 3:
        run = Run(4, rank, "bad-file")
        run.check(3, [f"rank {rank}: x.yaml:3:5: unknown key meesh"], 10)


def a_failure_in_a_step_is_told_once():  # B41
    run = Run(3, 2, "fail")
    run.check(9, ["checkpoint.bin: No space left on device"], 10)


def a_failing_producer_is_everybodys_cause():
    for rank in 0, 1:
        run = Run(2, rank, "producer")
        run.check(4, [f"rank {rank}: ", "executor cpu/0: token 7 is not finite"], 10)
        assert run.cause["status"] == "model" and run.cause["exit_code"] == 4, run.cause


def a_killed_rank_is_told_by_its_keeper():  # B43
    for rank in 0, 2:
        run = Run(3, rank, "kill")
        run.check(8, [f"rank {rank} on ", "killed by SIGKILL", "its last operation: all_reduce_sum on world/0"], 10)
        assert run.cause["rank"] == rank and run.cause["exit_code"] == 8, run.cause
        assert "all_reduce_sum on world/0" in run.cause["last_operation"], run.cause


def aborts_and_crashes_have_their_names():
    for mishap, name in ("abort", "SIGABRT"), ("crash", "SIGSEGV"):
        run = Run(2, 1, mishap)
        run.check(8, [f"killed by {name}"], 10)


def a_stopped_rank_is_named_by_the_survivors():
    for rank in 0, 1:
        run = Run(3, rank, "stop")
        run.check(7, [f"rank {rank} has been silent"], TIMEOUT + 10)
        assert run.cause["rank"] == rank and run.cause["exit_code"] == 7, run.cause
        assert "sequence 9, done" in run.cause["last_operation"], run.cause


def workers_of(mpirun):
    """Rank processes without children: the workers below their keepers."""
    everybody = descendants(mpirun)
    return [pid for pid in everybody if not descendants(pid)]


def pause_a_worker(mpirun):
    deadline = time.monotonic() + 10
    while not workers_of(mpirun) and time.monotonic() < deadline:
        time.sleep(0.05)
    worker = workers_of(mpirun)[0]
    os.kill(worker, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(worker, signal.SIGCONT)


def a_rank_stopped_for_less_than_the_timeout_goes_on():
    run = Run(2, timeout=6, poke=pause_a_worker)
    run.check(0, [], 20, lines=0)


def a_hanging_rank_is_named():
    run = Run(3, 1, "hang")
    run.check(7, ["rank 1 has stood still", "(step 10)"], TIMEOUT + 10)


def a_rank_that_never_comes_is_named():
    run = Run(4, 3, "never-comes")
    run.check(7, ["rank 3 has stood still"], TIMEOUT + 10)


def a_rank_that_never_starts_mpi_ends_the_job():
    run = Run(2, 1, "late-init")
    run.check(7, ["MPI_Init has not ended within 3.0 s (startup_timeout)"], TIMEOUT + 10, lines=None)


def a_clean_close_waits_no_longer_than_the_timeout():
    run = Run(3, 1, "late-close")
    assert sum("closed" in line for line in run.lines) == 2, run.output
    assert TIMEOUT <= run.seconds <= TIMEOUT + 15 and run.code != 0 and not run.left, (run.seconds, run.code, run.output)


def codes_above_125_become_1():
    run = Run(2, 1, "exit-200")
    run.check(1, [], 10, lines=0)


def a_stop_signal_is_no_cause():
    run = Run(2, 1, "hang", timeout=30, poke=lambda mpirun: (time.sleep(1), os.kill(mpirun, signal.SIGTERM)))
    assert run.code != 0 and not run.lines and not run.left and run.seconds < 10, run.output


def a_worker_dies_with_its_keeper():
    def kill_a_keeper(mpirun):
        time.sleep(1)
        keeper = next(pid for pid in descendants(mpirun) if descendants(pid))
        worker = descendants(keeper)[0]
        os.kill(worker, signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        time.sleep(0.3)
        assert not alive(worker), "the stopped worker has outlived its keeper"

    run = Run(2, 1, "hang", timeout=30, poke=kill_a_keeper)
    assert run.code != 0 and not run.left and run.seconds < 15, run.output


def singletons_are_told():
    """Two processes that believe to be ranks of a starter whose MPI is another one."""
    environment = {"PMI_RANK": "1", "PMI_SIZE": "2"}
    os.environ.update(environment)
    run = Run(1, starter=[])
    for name in environment:
        del os.environ[name]
    run.check(5, ["mpiexec started 2 processes, but each of them is an MPI world of its own"], 10)


TESTS = [
    a_good_run_ends_well,
    a_difference_is_told_once,
    a_failed_start_is_told_once,
    a_failure_in_a_step_is_told_once,
    a_failing_producer_is_everybodys_cause,
    a_killed_rank_is_told_by_its_keeper,
    aborts_and_crashes_have_their_names,
    a_stopped_rank_is_named_by_the_survivors,
    a_rank_stopped_for_less_than_the_timeout_goes_on,
    a_hanging_rank_is_named,
    a_rank_that_never_comes_is_named,
    a_rank_that_never_starts_mpi_ends_the_job,
    a_clean_close_waits_no_longer_than_the_timeout,
    codes_above_125_become_1,
    a_stop_signal_is_no_cause,
    a_worker_dies_with_its_keeper,
    singletons_are_told,
]


def main():
    wanted = sys.argv[3:]
    failed = 0
    for test in TESTS:
        if wanted and test.__name__ not in wanted:
            continue
        begin = time.monotonic()
        try:
            test()
            verdict = "ok"
        except AssertionError as error:
            verdict = f"FAILED: {error}"
            failed += 1
        print(f"{test.__name__}: {verdict} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 1 if failed else 0


sys.exit(main())
