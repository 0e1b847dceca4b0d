"""Damaged frames, dead, stopped, late and silent ranks: every rank ends in time, one cause names the culprit.

usage: test_faults.py [frames|ranks|signals]      without: all
"""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time

import expecting
import fault_matrix
from expecting import running
from model_files import Folder

LLAMA = os.path.join(running.TINY, "llama")
TIMEOUT, STARTUP = 3, 6  # seconds, of the topologies here
GRACE = 10               # what the product promises beyond the timeout
PROMPTS = ["t", "there is a line"]
tally = running.Tally()
folder = running.scratch("faults")


def topology(name, mesh, prompts=None, model=LLAMA, new=4, microbatch="auto", **communication):
    return running.write_topology(
        folder, name, mesh,
        {"model": model, "prompts": prompts or PROMPTS, "max_new_tokens": new, "ignore_eos": True,
         "microbatch": microbatch},
        communication={"timeout": "%ds" % TIMEOUT, "startup_timeout": "%ds" % STARTUP, **communication})


def run(mesh, faults, name="job", arguments=(), **keys):
    path = topology("%s-%s" % (name, "-".join("%s%d" % pair for pair in sorted(mesh.items()))), mesh, **keys)
    options = [word for fault in faults for word in ("--fault", fault)]
    return running.mpirun(running.world(mesh), ["run", path, "--json"] + options + list(arguments), timeout=60)


def tokens(result):
    return [o["tokens"] for o in result.objects()] if result.code == 0 else None


def together(workers, jobs):
    """Run the jobs, some at a time: most of them wait for a timeout."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(*job) for job in jobs]:
            done.result()


# ---- damaged frames ------------------------------------------------------------------------------------

# The header as docs/frame.md lays it out: offset of each field's lowest byte, and its name in a message.
FIELDS = [(0, "magic"), (4, "version"), (6, "flags"), (8, "header bytes"), (12, "kind"), (16, "session digest"),
          (24, "object id"), (28, "operation"), (32, "sender"), (36, "round"), (40, "piece"), (44, "piece count"),
          (48, "sequence"), (56, "epoch"), (64, "send count"), (72, "receive count"), (80, "schema digest"),
          (88, "role ordinal"), (90, "role count"), (92, "dtype"), (94, "ndim")]
FIELDS += [(96 + 8 * i, "extent %d" % i) for i in range(2)] + [(112, "role"), (159, "padding byte 159")]
FIELDS += [(160, "payload bytes"), (168, "payload checksum"), (184, "role length"), (188, "root or axis")]
CHECKSUM = 176
FORWARD = 8  # the second pass of two stages: rank 0 sends over forward/0-1 in it


def flipped(rank, operation, byte, field, resealed, where):
    """where: how the message names route or group and the two ranks."""
    kind = "flip:%d%s" % (byte, ":resealed" if resealed else "")
    result = run({"pipeline": 2}, ["rank=%d,op=%d,kind=%s" % (rank, operation, kind)])
    name = "%s of rank %d, %s%s" % (where.split(" ")[0], rank, field, ", resealed" if resealed else "")
    said = [where, r"%s: expected \S.*?, got \S" % re.escape(field)]
    if resealed and where.startswith("group") and field == "operation":
        # A whole header about another operation: each rank's own call is told.  About another sequence number its
        # sender is asked first, and says that it was called with the same.
        said = [r"group world/0(, sequence \d+)?: rank 0: .*; rank 1: (sequence \d+, )?\w"]
    expecting.failure(tally, "a damaged frame: " + name, result, "mismatch", *said, within=GRACE)
    tally.check(not result.out, "a damaged frame delivers nothing: " + name, result.summary())


def unharmed(name, result, reference):
    if expecting.success(tally, name, result):
        tally.check(tokens(result) == tokens(reference), name + ": the same tokens", result.summary())


def test_frames():
    reference = run({"pipeline": 2}, [])
    expecting.success(tally, "the job without a fault", reference)
    forward = r"route forward/0-1 \(rank 0 to rank 1\)"
    back = r"route token/1-0 \(rank 1 to rank 0\)"
    vote = r"group world/0 \(rank 1 to rank 0\)"
    jobs = [(flipped, 0, FORWARD, byte, field, resealed, forward) for byte, field in FIELDS
            for resealed in (False, True)]
    jobs.append((flipped, 0, FORWARD, CHECKSUM, "header checksum", False, forward))
    for byte, field in FIELDS:
        if field in ("session digest", "sequence", "epoch", "dtype", "extent 0"):
            jobs += [(flipped, 1, FORWARD, byte, field, resealed, back) for resealed in (False, True)]
        if field in ("operation", "round", "sequence", "object id", "root or axis"):
            jobs += [(flipped, 1, vote_operation(), byte, field, resealed, vote) for resealed in (False, True)]
    together(4, jobs)
    result = run({"pipeline": 2}, ["rank=0,op=%d,kind=flip:%d:resealed" % (FORWARD, CHECKSUM)])
    unharmed("a flipped checksum that is computed again", result, reference)
    for byte in (192, 300):
        result = run({"pipeline": 2}, ["rank=0,op=%d,kind=flip:%d:resealed" % (FORWARD, byte)], name="payload",
                     integrity="payload")
        expecting.failure(tally, "a damaged payload, byte %d" % byte, result, "mismatch", forward, r"payload checksum",
                          within=GRACE)
        tally.check(not result.out, "a damaged payload delivers nothing, byte %d" % byte, result.summary())
    result = run({"pipeline": 2}, [], name="payload", integrity="payload")
    unharmed("payloads with checksums", result, reference)


VOTE = []


def vote_operation():
    """An operation of rank 1 from which on its next frame is the vote: found by trying."""
    if not VOTE:
        for operation in range(5, 30):
            result = run({"pipeline": 2}, ["rank=1,op=%d,kind=flip:48" % operation])
            if re.search(r"failure_agreement", result.err):
                VOTE.append(operation)
                break
        tally.check(VOTE, "a vote of rank 1 can be damaged")
    return VOTE[0] if VOTE else 10


# ---- ranks that die, stop, are late, skip, send less, have no memory -----------------------------------


def learn(mesh, **keys):
    """A good run: (its result, the operations of each rank)."""
    where = os.path.join(folder, "learn-" + "-".join("%s%d" % pair for pair in sorted(mesh.items())))
    result = run(mesh, [], arguments=["--set", "run_dir=" + where], **keys)
    expecting.success(tally, "the job without a fault on %s" % mesh, result)
    return result, fault_matrix.read_run(where)


def rehearse(mesh, case, delivered, ended):
    where = os.path.join(folder, "rehearsed-%d-%d-%s" % (len(mesh), case.operation, case.option.replace(":", "-")))
    result = run(mesh, [case.option], arguments=["--set", "run_dir=" + where])
    good = fault_matrix.judge(tally, case, result, delivered, where)
    ended[case.rank, case.phase, case.kind] = "%s %.1f s%s" % (result.code, result.seconds, "" if good else " !")


def out_of_memory(mesh, rank, operation):
    result = run(mesh, ["rank=%d,op=%d,kind=oom" % (rank, operation)])
    expecting.failure(tally, "no memory on rank %d, operation %d of %s" % (rank, operation, mesh), result,
                      "environment", r"\brank %d\b.*no memory for operation %d" % (rank, operation))


def late(mesh, rank, operation, seconds, reference):
    result = run(mesh, ["rank=%d,op=%d,kind=delay:%ds" % (rank, operation, seconds)])
    unharmed("rank %d is %d s late in operation %d of %s" % (rank, seconds, operation, mesh), result, reference)


def test_ranks():
    mesh, square = {"pipeline": 2}, {"pipeline": 2, "tensor": 2}
    reference, operations = learn(mesh)
    squared, of_square = learn(square)
    ended = {}
    jobs = []
    for case in (fault_matrix.cases(operations[1], 1, TIMEOUT, STARTUP) +
                 fault_matrix.cases(operations[0], 0, TIMEOUT, STARTUP, only=("building", "step: token", "closing"))):
        jobs.append((rehearse, mesh, case, tokens(reference), ended))
    for case in fault_matrix.cases(of_square[3], 3, TIMEOUT, STARTUP, only=("step: vote",)):
        jobs.append((rehearse, square, case, tokens(squared), ended))
    phases = fault_matrix.phases(operations[1])
    jobs += [(out_of_memory, mesh, 1, operation) for operation in phases.values()]
    jobs += [(late, mesh, 1, phases[phase], 1, reference) for phase in ("loading", "step: vote")]
    jobs.append((late, square, 2, fault_matrix.phases(of_square[2])["step: hidden"], 1, squared))
    together(6, jobs)
    print(fault_matrix.table(ended), file=sys.stderr)


# ---- signals from outside ------------------------------------------------------------------------------


def start_long(name, mesh=None, arguments=(), turns=50, **keys):
    """A generation that has begun, its text streams, and that is not over before something is done to it."""
    mesh = mesh or {"pipeline": 2}
    # One request a wave: the prompts take their turns, so that it lasts on a fast and idle machine too.
    keys = {"model": running.KJV, "prompts": ["In the beginning", "And it came to pass"] * turns, "new": 400,
            "microbatch": 1, **keys}
    path = topology(name, mesh, **keys)
    job = running.Run(running.mpirun_command(running.world(mesh), ["run", path] + list(arguments)))
    began = job.until(lambda: len(job.text()) > 40)
    tally.check(began, name + ": the generation has begun", job.text(job.err))
    return job


def end_after(job, what):
    """Do what to the job; the result's seconds count from here."""
    before = time.monotonic()
    what(job)
    result = job.finish(60)
    result.seconds = time.monotonic() - before - result.still
    return result


def send(number, rank, whom=1):
    return lambda job: os.kill(job.pair(rank)[whom], number)


def test_signals():
    jobs = []

    def case(function):
        jobs.append((function,))

    @case
    def killed():  # B43
        for number, word in ((signal.SIGKILL, "SIGKILL"), (signal.SIGABRT, "SIGABRT"), (signal.SIGTERM, "SIGTERM")):
            result = end_after(start_long("worker-" + word.lower()), send(number, 1))
            expecting.failure(tally, "B43 %s to a worker" % word, result, "lost", r"rank 1\b.*%s" % word)

    @case
    def cause_file():
        where = os.path.join(folder, "runs-of-one")
        job = start_long("cause", {"pipeline": 2, "tensor": 2}, ["--set", "run_dir=" + where])
        result = end_after(job, send(signal.SIGKILL, 3))
        expecting.failure(tally, "SIGKILL to one of four workers", result, "lost", r"rank 3\b.*SIGKILL",
                          r"last operation: \w+ on \S+/\d")
        found = [os.path.join(at, name) for at, _, names in os.walk(where) for name in names if name == "cause.json"]
        if tally.check(len(found) == 1, "the run's folder has one cause.json", result.summary()):
            with open(found[0], encoding="utf-8") as file:
                cause = json.load(file)
            tally.check(cause["rank"] == 3 and cause["exit_code"] == 8 and "SIGKILL" in cause["text"],
                        "cause.json says the same", json.dumps(cause))

    @case
    def stopped():  # B174
        result = end_after(start_long("worker-stop"), send(signal.SIGSTOP, 1))
        expecting.failure(tally, "B174 SIGSTOP to a worker for good", result, "timeout", r"rank 1 has been silent",
                          r"step \d+", within=TIMEOUT + GRACE)

    @case
    def stopped_for_a_while():  # B174, B171
        quiet = ["--quiet"]
        reference = start_long("reference", arguments=quiet, turns=10).finish(60)

        def pause(job):
            pid = job.pair(1)[1]
            for _ in range(2):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(TIMEOUT / 2)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.2)

        result = end_after(start_long("worker-pause", arguments=quiet, turns=10), pause)
        if expecting.success(tally, "B174 SIGSTOP for less than the timeout", result):
            tally.check(result.out == reference.out and result.out, "B174 and the same text",
                        result.summary() + reference.summary())

    @case
    def all_stopped():
        path = topology("all-stopped", {"pipeline": 2})
        result = running.mpirun(2, ["run", path, "--fault", "rank=0,op=12,kind=stop", "--fault", "rank=1,op=13,kind=stop"],
                                timeout=60)
        expecting.failure(tally, "all ranks are stopped", result, "timeout", r"rank \d on \S+ has been stopped for",
                          within=TIMEOUT + GRACE + 2)

    @case
    def keeper_killed():
        result = end_after(start_long("keeper-kill"), send(signal.SIGKILL, 1, 0))
        tally.check(result.code not in (0, running.OUTLIVED) and result.seconds < GRACE and not result.left,
                    "SIGKILL to a keeper ends its worker and the job", result.summary())

    @case
    def mpirun_ended():
        for number in (signal.SIGTERM, signal.SIGINT):
            result = end_after(start_long("mpirun-%d" % number), lambda job: os.kill(job.process.pid, number))
            wrong = [] if 1 <= result.code <= 125 else ["code %s" % result.code]
            wrong += [] if result.seconds < GRACE else ["%.1f s" % result.seconds]
            wrong += ["left %s" % result.left] if result.left else []
            wrong += ["%d causes" % expecting.causes(result)] if expecting.causes(result) else []
            tally.check(not wrong, "signal %d to mpirun" % number, "%s\n%s" % (wrong, result.summary()))

    @case
    def missing():
        for name, command in (("sleeps", "sleep 60"), ("has ended", "true")):
            path = topology("missing-" + command.split()[0], {"pipeline": 3}, startup_timeout="4s")
            script = '[ $OMPI_COMM_WORLD_RANK = 1 ] && exec %s; exec "%s" run "%s"' % (command, running.FERRY, path)
            result = running.execute(running.mpirun_command(3, ["-c", script], program=["sh"]), timeout=60)
            # mpirun sees at times that a rank ended before MPI_Init while others did not; then it names the rank itself.
            if command == "true" and "exited due to process rank 1" in result.err:
                tally.check(result.code == 1 and not result.left, "a rank that never starts is named by mpirun",
                            result.summary())
                continue
            expecting.failure(tally, "a rank that never starts and %s" % name, result, "timeout",
                              r"rank 1 has not come", within=4 + GRACE, absent=["rank 2 has not", "rank 0 has not"])

    @case
    def cut_under_mapping():
        model = Folder(running.KJV, folder, "cut")
        job = start_long("cut-file", model=model.path)
        result = end_after(job, lambda job: model.cut("model-00002-of-00002.safetensors", 4096))
        # Both ranks meet the end of the file; one of them says so.
        expecting.failure(tally, "a file is cut under its mapping", result, "storage", r"model-00002-of-00002\.safetensors",
                          r"offset \d+")

    @case
    def one_keeper_ended():
        """SIGTERM to one keeper alone, by nobody that has started the job: a cause, where one of mpirun's is none."""
        result = end_after(start_long("keeper-term"), send(signal.SIGTERM, 1, 0))
        expecting.failure(tally, "SIGTERM to one keeper", result, "lost",
                          r"rank 1 on \S+ died: killed by SIGTERM, which process %d \(python" % os.getpid())

    @case
    def two_at_once():
        """Two ranks die at the same instant: one cause, the same on disk."""
        for attempt in range(2):
            where = os.path.join(folder, "twice-%d" % attempt)
            job = start_long("twice-%d" % attempt, {"pipeline": 2, "tensor": 2}, ["--set", "run_dir=" + where])

            def both(job):
                pids = [job.pair(rank)[1] for rank in (1, 2)]
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)

            result = end_after(job, both)
            expecting.failure(tally, "two ranks die at once", result, "lost", r"rank [12] on \S+ died: killed by SIGKILL")
            with open(os.path.join(where, os.listdir(where)[0], "cause.json"), encoding="utf-8") as file:
                cause = json.load(file)
            tally.check("rank %d on" % cause["rank"] in result.err, "the printed cause is the one on disk",
                        result.summary() + json.dumps(cause))

    @case
    def disk_full():
        result = run({"pipeline": 2}, ["rank=1,op=12,kind=disk-full"], name="disk")
        expecting.failure(tally, "a disk that runs full on rank 1", result, "storage",
                          r"rank 1: .*rank-000001\.recorder: No space left on device")

    @case
    def never_reached():
        """A rehearsal that does not happen is told, by rank 0, and changes nothing."""
        reference, operations = learn({"pipeline": 2}, name="reference")
        posted = operations[1][-1].number + 1
        result = run({"pipeline": 2}, ["rank=1,op=%d,kind=kill" % posted, "rank=0,op=2,kind=flip:70000",
                                       "rank=1,op=%d,kind=delay:10ms" % (posted - 1)])
        unharmed("faults that never happen", result, reference)
        notes = [line for line in result.err.splitlines() if "warning: fault" in line]
        tally.check(len(notes) == 2 and any("rank=1,op=%d was never reached: the rank posted %d operations"
                                            % (posted, posted) in note for note in notes) and
                    any("rank=0,op=2,kind=flip:70000 never happened" in note for note in notes),
                    "both are told, the one that happened is not", result.summary())

    @case
    def a_reader_that_is_slow():
        """Standard output is non-blocking and full: waited for, as a blocking one would be."""
        ends = os.pipe()
        os.set_blocking(ends[1], False)
        try:  # fill it
            while True:
                os.write(ends[1], b"x" * 4096)
        except BlockingIOError:
            pass
        path = topology("slow-reader", {"pipeline": 1})
        process = subprocess.Popen([running.FERRY, "run", path, "--json"], stdout=ends[1], stderr=subprocess.PIPE)
        os.close(ends[1])
        time.sleep(0.5)
        with os.fdopen(ends[0], "rb") as reader:
            out = reader.read().lstrip(b"x")
        err = process.communicate(timeout=30 * running.PATIENCE)[1]
        tally.check(process.returncode == 0 and len(out.splitlines()) == len(PROMPTS),
                    "a full non-blocking pipe loses nothing", "%s\n%s\n%s" % (process.returncode, out, err))

    @case
    def full_output():
        path = topology("full-output", {"pipeline": 1})
        with open("/dev/full", "wb") as full:
            done = subprocess.run([running.FERRY, "run", path], stdout=full, stderr=subprocess.PIPE,
                                  timeout=30 * running.PATIENCE, check=False)
            tally.check(done.returncode == 9 and b"standard output: No space left" in done.stderr,
                        "results on a full disk", done.stderr.decode())
            for words in (["--help"], ["run", "--help"], ["version"], ["help", "plan"]):
                done = subprocess.run([running.FERRY] + words, stdout=full, stderr=subprocess.PIPE, check=False)
                tally.check(done.returncode == 9 and done.stderr.count(b"No space left") == 1,
                            "%s on a full disk" % " ".join(words), done.stderr.decode())

    @case
    def told_once_by_three():
        for name, words, needle in (("an unknown option", ["run", "--nope"], "unrecognized option '--nope'"),
                                    ("an unknown command", ["rum"], "no command 'rum'"),
                                    ("no topology", ["run"], "which topology")):
            result = running.execute([running.MPIRUN, "--oversubscribe", "-n", "3", running.FERRY] + words, timeout=30)
            tally.check(result.code == 2 and result.err.count(needle) == 1, name + " on 3 ranks is told once",
                        result.summary())
        result = running.execute([running.MPIRUN, "--oversubscribe", "-n", "3", running.FERRY, "run", "--help"],
                                 timeout=30)
        tally.check(result.code == 0 and result.out.count("Usage: ferry run") == 1, "help on 3 ranks is shown once",
                    result.summary())

    @case
    def wrong_interface():
        result = run({"pipeline": 2}, [], name="interface", interface="nowhere0")
        expecting.failure(tally, "an interface that no host has", result, "environment",
                          r"communication\.interface: nowhere0: no such interface on \S+; it has .*\blo\b")

    @case
    def no_plugin():
        """What fails before ranks can talk is told once too."""
        path = topology("no-plugin", {"pipeline": 3})
        with open(os.path.join(folder, "ferry-mpi.so"), "w", encoding="utf-8") as file:
            file.write("no library")
        result = running.mpirun(3, ["run", path], extra_env={"FERRY_PLUGIN_DIR": folder}, timeout=30)
        expecting.failure(tally, "a broken plugin on 3 ranks", result, "environment",
                          r"ferry-mpi\.so cannot be opened")

    @case
    def lines_of_eight():  # B48
        """Lines of 8 ranks at once, all through rank 0: none is cut, mixed or lost."""
        faults = ["rank=%d,op=%d,kind=kill" % (rank, 90000 + i) for rank in range(8) for i in range(2)]
        result = run({"pipeline": 8}, faults, name="lines", model=os.path.join(running.TINY, "llama-10-layers"))
        expecting.success(tally, "B48 a job with 16 notes of 8 ranks", result)
        notes = re.findall(r"^ferry: rank (\d)/8[^:]*: warning: fault rank=(\d),op=(\d+) was never reached: "
                           r"the rank posted \d+ operations$", result.err, re.MULTILINE)
        tally.check(sorted((int(rank), int(op)) for _, rank, op in notes) ==
                    [(rank, 90000 + i) for rank in range(8) for i in range(2)] and
                    all(tag == rank for tag, rank, _ in notes), "B48 every line has come whole, with its rank",
                    result.summary())

    @case
    def long_temporary_folder():  # B56
        reference = run({"pipeline": 2}, [])
        for length in (90, 110, 200):
            where = os.path.join(folder, "t" * (length - len(folder) - 1))
            os.makedirs(where)
            path = topology("tmpdir", {"pipeline": 2})
            result = running.mpirun(2, ["run", path, "--json"], extra_env={"TMPDIR": where}, timeout=60)
            unharmed("B56 a temporary folder of %d characters" % length, result, reference)

    @case
    def small_shared_memory():  # B58
        path = topology("shm", {"pipeline": 2})
        script = 'mount -t tmpfs -o size=512k tmpfs /dev/shm && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", script, "sh"]
        if running.execute(command + ["true"], timeout=30).code:
            tally.skip("B58 /dev/shm of 512 KiB", "no mount namespace may be made here")
            return
        reference = run({"pipeline": 2}, [])
        result = running.execute(command + running.mpirun_command(2, ["run", path, "--json"]), timeout=60)
        unharmed("B58 /dev/shm of 512 KiB", result, reference)

    @case
    def full_run_dir():
        """Not even the cause can be written: one rank tells it all the same, and one only."""
        where = os.path.join(folder, "full")
        os.makedirs(where, exist_ok=True)
        path = topology("full", {"pipeline": 2, "tensor": 2})
        script = 'mount -t tmpfs -o size=4k tmpfs "$0" && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", script, where]
        if running.execute(command + ["true"], timeout=30).code:
            tally.skip("a run_dir of 4 KiB", "no mount namespace may be made here")
            return
        result = running.execute(command + running.mpirun_command(4, ["run", path, "--set", "run_dir=" + where]),
                                 timeout=60)
        expecting.failure(tally, "a run_dir of 4 KiB", result, "storage", r"No space left on device")

    @case
    def quarantined():
        path = topology("quarantine", {"pipeline": 2}, on_timeout="quarantine")
        result = running.mpirun(2, ["run", path, "--fault", "rank=1,op=8,kind=stop"], timeout=60)
        expecting.failure(tally, "a stopped rank with on_timeout: quarantine", result, "timeout",
                          r"rank 1 has been silent", within=TIMEOUT + GRACE)

    @case
    def left_out_and_failed():
        """A rank that has failed by itself and skips an exchange of the consensus knows its own failure at least."""
        for operation in range(2):
            result = run({"pipeline": 2}, ["rank=1,op=%d,kind=skip" % operation], "left-out-%d" % operation,
                         model="/nowhere")
            expecting.failure(tally, "a rank without a model skips operation %d" % operation, result,
                              ["storage", "mismatch"], "/nowhere", within=STARTUP + GRACE)

    @case
    def mpirun_killed_before_a_stopped_rank():
        path = topology("mpirun-kill-stopped", {"pipeline": 2}, startup_timeout="60s")
        job = running.Run(running.mpirun_command(2, ["run", path, "--fault", "rank=1,op=0,kind=stop"]))
        tally.check(job.until(lambda: any(running.state(pid) == "T" for pid in job.pids())), "rank 1 is stopped",
                    job.text(job.err))
        result = end_after(job, lambda job: os.kill(job.process.pid, signal.SIGKILL))
        tally.check(not result.left, "SIGKILL to mpirun leaves no stopped process", result.summary())

    @case
    def mpirun_killed():
        result = end_after(start_long("mpirun-kill"), lambda job: os.kill(job.process.pid, signal.SIGKILL))
        tally.check(not result.left, "SIGKILL to mpirun leaves no process", result.summary())

    together(3, jobs)


def main():
    parts = {"frames": test_frames, "ranks": test_ranks, "signals": test_signals}
    for name in sys.argv[1:] or parts:
        parts[name]()
    tally.finish()


if __name__ == "__main__":
    main()
