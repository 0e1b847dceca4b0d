"""Runs the built ferry for the tests: writes topologies, starts mpirun, reads JSON lines.

Standard library only.  FERRY names the program; MPIRUN the launcher.  Every run has a deadline, and whatever it started
carries a mark in its environment: so a test knows what is left of a run, can signal one rank of it, and ends all of it.

Two kinds of time: what only ends a test that hangs is multiplied by CK_TIMEOUT_MULTIPLIER, as Check's own limits are;
what the product promises is not, and counts from the start of the last rank, for mpirun's own start promises nothing,
and without the time for which the whole machine stood still.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FERRY = os.environ.get("FERRY", os.path.join(ROOT, "build", "ferry"))
MPIRUN = os.environ.get("MPIRUN", "mpirun")
SMOLLM2 = os.path.join(ROOT, "models", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
KJV = os.path.join(ROOT, "models", "kjv")
TINY = os.path.join(ROOT, "tests", "parity", "models")
MARK = "RUNNING_PY_MARK"
STARTS = "RUNNING_PY_STARTS"  # the folder where each rank leaves a file at its start
OUTLIVED = -1
PATIENCE = max(1.0, float(os.environ.get("CK_TIMEOUT_MULTIPLIER") or 1))
TICK, STILL = 0.02, 0.5  # seconds: a sleep of TICK that lasts for more than STILL is a machine that stood still


class Result:
    """How a run ended.  seconds: from the start of its last rank, or its own where no rank said when; still: those of
    them that are not counted.  left: the processes that were still there a moment after it, "pid name" each (ended
    since)."""

    def __init__(self, code, out, err, seconds=0.0, left=(), still=0.0):
        self.code, self.out, self.err, self.seconds, self.left = code, out, err, seconds, list(left)
        self.still = still

    def objects(self):
        """The JSON lines of standard output, by prompt number."""
        objects = [json.loads(line) for line in self.out.splitlines()]
        return sorted(objects, key=lambda o: o.get("prompt", 0))

    def summary(self):
        """Everything about it, for a failed test's report."""
        return "exit %s after %.1f s (and %.1f s in which the machine stood still), left %s\n" \
            "--- stdout\n%s\n--- stderr\n%s" % (self.code, self.seconds, self.still, self.left,
                                                 self.out[-4000:], self.err[-8000:])


def scratch(name):
    """A new empty folder that goes with this program, however it ends short of a signal."""
    folder = tempfile.mkdtemp(prefix="ferry-%s-" % name)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def environment(extra=None):
    env = dict(os.environ)
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none")
    env.update(extra or {})
    return {name: value for name, value in env.items() if value is not None}


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _stat(pid):
    """(name, the fields behind it) of /proc/PID/stat; the state is field 0, the parent 1, CPU ticks 11 and 12."""
    text = _read("/proc/%d/stat" % pid).decode(errors="replace")
    return text[text.find("(") + 1:text.rfind(")")], text[text.rfind(")") + 2:].split()


def state(pid):
    """The letter of a process's state, "T": stopped; "": it is gone."""
    return (_stat(pid)[1] or [""])[0]


class Run:
    """A command under way.  Its standard output and error go to files, so that a process that is left behind and holds
    them open does not hold up the test."""

    def __init__(self, command, extra_env=None, stdin=None, cwd=None):
        self.mark = uuid.uuid4().hex
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.starts = tempfile.mkdtemp(prefix="ferry-starts-")
        given = subprocess.DEVNULL
        if stdin is not None:
            given = tempfile.TemporaryFile()
            given.write(stdin)
            given.seek(0)
        env = environment(extra_env)
        env[MARK] = self.mark
        env[STARTS] = self.starts
        self.start = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.out, stderr=self.err, stdin=given, env=env, cwd=cwd,
                                        start_new_session=True)

    def pids(self):
        """All living processes of this run, the command's own one included."""
        wanted = (MARK + "=" + self.mark).encode()
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and wanted in _read("/proc/%s/environ" % entry).split(b"\0"):
                fields = _stat(int(entry))[1]
                if fields and fields[0] not in "ZX":
                    found.append(int(entry))
        return found

    def ranks(self, program=FERRY):
        """{rank: (pid of its keeper, pid of its worker)}, of those that are there."""
        ranks = {}
        for pid in self.pids():
            name, fields = _stat(pid)
            if name != os.path.basename(program)[:15] or not fields:
                continue
            for variable in _read("/proc/%d/environ" % pid).split(b"\0"):
                if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                    ranks.setdefault(int(variable.split(b"=")[1]), []).append((pid, int(fields[1])))
        pairs = {}
        for rank, found in ranks.items():
            for pid, parent in found:
                if any(parent == other for other, _ in found):
                    pairs[rank] = (parent, pid)
        return pairs

    def pair(self, rank):
        """(pid of its keeper, pid of its worker) of a rank that must be there."""
        if not self.until(lambda: rank in self.ranks()):
            raise AssertionError("rank %d is not there; exit status %s, standard error:\n%s" %
                                 (rank, self.process.poll(), self.text(self.err)))
        return self.ranks()[rank]

    def cpu_seconds(self, pids):
        """CPU time that these processes have used so far."""
        ticks = 0
        for pid in pids:
            fields = _stat(pid)[1]
            ticks += int(fields[11]) + int(fields[12]) if fields else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def text(self, file=None):
        """What has come on standard output (or self.err) so far."""
        number = (file or self.out).fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def until(self, ready, timeout=30):
        """Wait until ready() is true; False when the run ended or the time was up before."""
        deadline = time.monotonic() + timeout * PATIENCE
        while time.monotonic() < deadline:
            if ready():
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        return False

    def end(self):
        """SIGKILL to all that is left."""
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait(self, deadline):
        """Wait for the command's end, at most until deadline.  [(since when, how long)] the machine stood still."""
        still, before = [], time.monotonic()
        while self.process.poll() is None and before < deadline:
            time.sleep(TICK)
            now = time.monotonic()
            if now - before > STILL:
                still.append((before, now - before))
            before = now
        return still

    def begin(self):
        """When the last of its ranks started, or it itself."""
        files = [os.path.join(self.starts, name) for name in os.listdir(self.starts)]
        ago = time.time() - max(map(os.path.getmtime, files), default=0)
        return max(self.start, time.monotonic() - ago)

    def finish(self, timeout=120, grace=2.0):
        """Wait for the command's end, at most until timeout seconds (times PATIENCE) after its start."""
        note = ""
        timeout *= PATIENCE
        grace *= PATIENCE
        still = self.wait(self.start + timeout)
        code = self.process.poll()
        if code is None:
            code, note = OUTLIVED, "\nTEST: outlived %d s" % timeout
        end, begin = time.monotonic(), self.begin()
        still = sum(length for since, length in still if since > begin)
        seconds = end - begin - still
        deadline = time.monotonic() + (grace if code != OUTLIVED else 0)
        left = self.pids()
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = self.pids()
        left = ["%d %s" % (pid, _stat(pid)[0]) for pid in left]
        self.end()
        self.process.wait()
        result = Result(code, self.text(), self.text(self.err) + note, seconds, left, still)
        self.out.close()
        self.err.close()
        shutil.rmtree(self.starts)
        return result


def execute(command, timeout=120, **options):
    return Run(command, **options).finish(timeout)


# Freed memory is overwritten in the ranks, but not in mpirun 4.1.4, which reads some of its own when it relays a message.
PERTURBED = os.environ.pop("MALLOC_PERTURB_", "0")


# A rank says when it starts, then becomes the program.
RANK = ["sh", "-c", '[ -z "$%s" ] || : >"$%s/$OMPI_COMM_WORLD_RANK"; exec "$@"' % (STARTS, STARTS), "sh"]


def mpirun_command(ranks, arguments, program=None):
    perturb = [] if PERTURBED == "0" else ["-x", "MALLOC_PERTURB_=" + PERTURBED]
    return [MPIRUN, "--oversubscribe"] + perturb + ["-n", str(ranks)] + RANK + (program or [FERRY]) + arguments


def mpirun(ranks, arguments, **options):
    return execute(mpirun_command(ranks, arguments), **options)


def write_topology(folder, name, mesh=None, generate=None, text="", **sections):
    """A topology file; JSON is YAML.  Returns its path."""
    topology = {"ferry": 1, "name": name}
    if mesh:
        topology["mesh"] = mesh
    topology.update(sections)
    if generate is not None:
        topology["workload"] = {"generate": generate}
    path = os.path.join(folder, name + ".yaml")
    # Jobs that run at the same time may share a file: it is never there half.
    part = "%s.%s" % (path, uuid.uuid4().hex)
    with open(part, "w", encoding="utf-8") as file:
        json.dump(topology, file, ensure_ascii=False, indent=1)
        file.write("\n" + text)
    os.replace(part, path)
    return path


def world(mesh):
    ranks = 1
    for size in (mesh or {}).values():
        ranks *= size
    return ranks


def generate(mesh, generate_keys, arguments=(), name="test", timeout=300, **sections):
    """Run one generation with --json on the ranks that the mesh needs."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_topology(folder, name, mesh, generate_keys, **sections)
        return mpirun(world(mesh), ["run", path, "--json"] + list(arguments), timeout=timeout)


class Tally:
    """Counts checks, prints each failure, ends with TAP for the test runner."""

    def __init__(self):
        self.lines, self.failed = [], 0

    def check(self, good, name, detail=""):
        self.lines.append(("ok" if good else "not ok", name))
        if not good:
            self.failed += 1
            print("FAILED: %s\n%s" % (name, detail), file=sys.stderr, flush=True)
        return good

    def skip(self, name, why):
        self.lines.append(("ok", "%s # SKIP %s" % (name, why)))

    def finish(self):
        print("1..%d" % len(self.lines))
        for number, (state, name) in enumerate(self.lines, 1):
            print("%s %d %s" % (state, number, name.replace("\n", " ")))
        sys.exit(1 if self.failed else 0)
