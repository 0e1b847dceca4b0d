"""libferry as a user meets it: installed, found by pkg-config, linked by programs of C and C++, run under mpirun.

BUILD names the build folder to install from; CC the compiler; FLAGS what its own flags must be (sanitizers).
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import expecting
from expecting import running

BUILD = os.environ.get("BUILD", os.path.join(running.ROOT, "build"))
CC = os.environ.get("CC", "cc").split()
CXX = os.environ.get("CXX", "c++").split()
FLAGS = os.environ.get("FLAGS", "").split()
EXAMPLES = os.path.join(running.ROOT, "examples", "c")
tally = running.Tally()
folder = running.scratch("lib")
stage = os.path.join(folder, "stage")


def command(words, **options):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, **options)


def find(name):
    for where, _, names in os.walk(stage):
        if name in names:
            return os.path.join(where, name)
    return None


# ---- the installed files -------------------------------------------------------------------------------

result = command(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet"], env=dict(os.environ, DESTDIR=stage))
tally.check(result.returncode == 0, "meson installs into DESTDIR", result.stdout + result.stderr)
header, library, description = find("ferry.h"), find("libferry.so"), find("ferry.pc")
if not tally.check(all([header, library, description]), "header, library and ferry.pc are installed",
                   str([header, library, description])):
    tally.finish()
packages = {"PKG_CONFIG_PATH": os.path.dirname(description), "PKG_CONFIG_SYSROOT_DIR": stage}
loading = {"LD_LIBRARY_PATH": os.path.dirname(library), "FERRY_PLUGIN_DIR": None,
           "ASAN_OPTIONS": "detect_leaks=0"}  # Open MPI has leaks of its own
version = command(["pkg-config", "--modversion", "ferry"], env=dict(os.environ, **packages)).stdout.strip()
tally.check(re.fullmatch(r"\d+\.\d+\.\d+", version), "ferry.pc states the version", version)
tally.check(os.path.basename(os.path.realpath(library)) == "libferry.so." + version and find("libferry.so.0"),
            "the library has its version and a soname", os.path.realpath(library))

exported = [line.split()[-1].split("@")[0] for line in
            command(["nm", "-D", "--defined-only", library]).stdout.splitlines()]
named = set(re.findall(r"\b(ferry_[a-z0-9_]+)\(", open(header, encoding="utf-8").read()))
foreign = [name for name in exported if not name.startswith("ferry_") and not FLAGS]
tally.check(exported and not foreign, "the library exports ferry_ symbols and no others", str(foreign))
declared = {name for name in named if "FERRY_API" in re.search(
    r"[^;]*\b%s\(" % name, re.sub(r"/\*.*?\*/", "", open(header, encoding="utf-8").read(), flags=re.S)).group(0)}
tally.check(declared == {name for name in exported if name.startswith("ferry_")},
            "every function of ferry.h is exported, and nothing that it does not name",
            str(declared.symmetric_difference(exported)))
joined = re.findall(r"^ \* \S.*[^/ ] +(?:(?:FERRY_[A-Z]+|otherwise|options|ret|give_back) {2,}\S).*$",
                    open(header, encoding="utf-8").read(), re.MULTILINE)
tally.check(not joined, "each result and argument in ferry.h's lists has a line of its own", "\n".join(joined))


def flags():
    words = command(["pkg-config", "--cflags", "--libs", "ferry"], env=dict(os.environ, **packages)).stdout.split()
    return words + FLAGS + ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def compile_program(sources, name, compiler=None, options=()):
    path = os.path.join(folder, name)
    made = command((compiler or CC) + list(options) + sources + ["-o", path] + flags(), env=dict(
        os.environ, OMPI_CC=" ".join(CC)))
    tally.check(made.returncode == 0, "%s compiles with pkg-config's flags" % name, made.stderr)
    return path


plus = os.path.join(folder, "plus.cc")
with open(plus, "w", encoding="utf-8") as file:
    file.write("#include <ferry.h>\n#include <cstdio>\n"
               "int main() { ferry_error error; ferry_session *session = nullptr;\n"
               "  ferry_status status = ferry_close(session, &error);\n"
               "  std::printf(\"%s %s\\n\", ferry_version(), ferry_status_name(status)); }\n")
if shutil.which(CXX[0]):
    path = compile_program([plus], "a C++ program", CXX, ["-std=c++14"])
    said = command([path], env=running.environment(loading))
    tally.check(said.stdout == version + " ok\n", "a C++ program calls libferry", said.stdout + said.stderr)
else:
    tally.skip("a C++ program calls libferry", "no C++ compiler")


# ---- the examples --------------------------------------------------------------------------------------

def run(words, ranks=None, extra=None, **options):
    """words: one program with arguments, or several separated by ':'."""
    line = [running.MPIRUN, "--oversubscribe"] + (["-n", str(ranks)] if ranks else []) + words
    return running.execute(line, extra_env=dict(loading, **(extra or {})), timeout=60, **options)


programs = {}
for name in ("sum", "gather", "experts", "measure", "listen", "overlap"):
    source = os.path.join(EXAMPLES, name + ".c")
    length = len(open(source, encoding="utf-8").read().splitlines())
    tally.check(length < 80, "examples/c/%s.c is shorter than 80 lines" % name, str(length))
    programs[name] = compile_program([source], name, options=["-std=c17"])


def example(name, words, ranks, expected):
    result = run(words, ranks, cwd=EXAMPLES)
    tally.check(result.code == 0 and sorted(result.out.splitlines()) == sorted(expected) and not result.left,
                "the example %s prints what its README says" % name, result.summary())
    # The README shows these very lines.
    readme = open(os.path.join(EXAMPLES, "README.md"), encoding="utf-8").read()
    tally.check(all("    " + line + "\n" in readme for line in expected), "README.md shows the output of " + name,
                "\n".join(expected))


example("sum", [programs["sum"]], 4,
        ["member %d of workers: 1000 sums, the last is %d, 0 wrong" % (m, sum(999 + i for i in range(3)))
         for m in range(3)])
example("gather", [programs["gather"]], 4,
        ["member %d (rank %d) gave %d rows and has 6, 0 cells wrong" % member
         for member in zip(range(4), [2, 0, 3, 1], [3, 0, 2, 1])])
deals = [[(10 - r if e == r // 2 else 0) + (r if e == (r + 1) % 4 else 0) for e in range(4)] for r in range(4)]
example("experts", [programs["experts"]], 4,
        ["expert %d worked on %d tokens, its own 10 are home, 0 values wrong" % (e, sum(d[e] for d in deals))
         for e in range(4)])
example("overlap", [programs["overlap"]], 2,
        ["rank %d: 8 blocks made and summed, 0 wrong" % rank for rank in range(2)])
example("route", ["-n", "1", programs["measure"], ":", "-n", "1", programs["listen"]], None,
        ["step %d: %d rows, 0 values wrong" % step for step in zip(range(4), [16, 1, 0, 5])])

# Two programs that disagree: nothing is believed, one of them says why.


def changed(name, old, new):
    """The example with one change, compiled."""
    text = open(os.path.join(EXAMPLES, name + ".c"), encoding="utf-8").read()
    source = os.path.join(folder, name + "-changed.c")
    with open(source, "w", encoding="utf-8") as out:
        out.write(text.replace(old, new))
    return compile_program([source], name + "-changed") if old in text else None


for sender, receiver, said in (
        (changed("measure", "{16, 1, 0, 5}", "{16, 17, 0, 5}"), programs["listen"],
         "measure: over a limit: rank 0: 408 bytes in a tensor of 384"),
        (programs["measure"], changed("listen", "{rows, 3}}", "{rows, 4}}"),
         "measure: invalid argument: rank 1: route readings (rank 0 to rank 1), sequence 0: route readings, tensor values: "
         "dimension 1 is 4, the plan says 3 to 3")):
    result = run(["-n", "1", sender, ":", "-n", "1", receiver], cwd=EXAMPLES)
    told = [line for line in result.err.splitlines() if re.match("measure: |listen: ", line)]
    tally.check(result.code not in (0, 124) and told == [said] and not result.left,
                "two programs that disagree end with one cause: " + said, result.summary())
    tally.check("    " + said + "\n" in open(os.path.join(EXAMPLES, "README.md"), encoding="utf-8").read(),
                "README.md shows it", said)


# ---- scenes --------------------------------------------------------------------------------------------

MPICC = os.environ.get("MPICC", "mpicc")
probe = compile_program([os.path.join(running.ROOT, "tests", "cli", name + ".c")
                         for name in ("libferry_probe", "libferry_operations", "libferry_mistakes",
                                      "libferry_executors")], "probe", [MPICC], ["-std=gnu17"])


def topology(world, name="probe", **communication):
    return running.write_topology(
        folder, "%s-%d" % (name, world), None, world=world,
        groups=[{"name": "turned", "members": list(reversed(range(world)))},
                {"name": "narrow", "members": [0], "operations": ["all_reduce_sum"], "dtypes": ["u32"]}],
        routes=[{"name": "tap", "from": 0, "to": world - 1, "extents": {"rows": "0..64"},
                 "bundle": [{"role": "hidden", "dtype": "f32", "shape": ["rows", 4]},
                            {"role": "positions", "dtype": "u32", "shape": ["rows"]}]},
                {"name": "lone", "from": 0, "to": world - 1,
                 "bundle": [{"role": "words", "dtype": "u32", "shape": [4]}]}] if world > 1 else [],
        communication=dict({"timeout": "2s", "startup_timeout": "20s"}, **communication))


def lines(result, rank):
    mark = "rank %d: " % rank
    return [line[len(mark):] for line in result.out.splitlines() if line.startswith(mark)]


# One rank does not come to MPI's own end: that takes 8 s and the timeout, meanwhile the others run.
absent = []
waiting = threading.Thread(target=lambda: absent.append(
    run([probe, "absent", topology(2, "absent", timeout="100ms")], 2)))
waiting.start()

for world in (1, 2, 3, 4):
    result = run([probe, "operations", topology(world)], world)
    for rank in range(world):
        expected = ["member %d of %d, world rank of member 0 is %d" % (world - 1 - rank, world, world - 1), "view 0",
                    "given back 1", "even 0, uneven 0, all to all 0", "broadcast 0, agreement 0", "route 0",
                    "barrier: ok"]
        tally.check(lines(result, rank) == expected, "every operation is right on rank %d of %d" % (rank, world),
                    result.summary())
    tally.check(result.code == 0 and not result.left, "a job of %d ends well" % world, result.summary())

result = run([probe, "operations", topology(2), "world=3", "groups[0].members=[1,2,0]", "groups[1].members=[2]"], 3)
tally.check(result.code == 0 and lines(result, 2)[:1] == ["member 1 of 3, world rank of member 0 is 1"],
            "overrides are taken", result.summary())

result = run([probe, "mistakes", topology(2)], 2)
told = lines(result, 0)
for number, (what, pattern) in enumerate([
        ("group", "invalid argument, speak 1: no group is named turnde; did you mean turned\\?"),
        ("route", "invalid argument, speak 1: no route is named tip; did you mean tap\\?"),
        ("line", "invalid argument, speak 1: the mesh has no groups along tensor: its size is 1"),
        ("axis", "invalid argument, speak 1: depth is no axis: data, pipeline, tensor or expert"),
        ("operation", "invalid argument, speak 1: group narrow: broadcast was not selected for it: its operations are "
         "all_reduce_sum"),
        ("dtype", "invalid argument, speak 1: group narrow: f32 was not selected for it: its dtypes are u32"),
        ("root", "invalid argument, speak 1: group turned: root 99 among 2 members"),
        ("view", "invalid argument, speak 1: .*f32 wants addresses that are multiples of 4"),
        ("huge", "over a limit, .*"), ("sum", "ok"), ("counts", "invalid argument, speak 1: counts is NULL"),
        ("nulls", "0 taken"),
        ("empty", "invalid argument, speak 1: an empty name is no group's; `ferry plan` lists those that there are"),
        ("dtypes", "invalid argument, speak 1: no dtype has the number 99: 1 \\(f32\\) to 11 \\(bool\\) are dtypes"),
        ("ndim", "invalid argument, speak 1: bf16 with 9 dimensions: 0 to 8 are allowed"),
        ("total", "over a limit, speak 1: group turned: receive counts: members 0 to 1 have more together than 64 bits can "
         "count: member 1 has 2")]):
    tally.check(number < len(told) and re.fullmatch("%s: %s" % (what, pattern), told[number]),
                "a mistake is an error of its call alone: " + what, result.summary())
tally.check(told[-1:] == ["touched 0"] and lines(result, 1)[-1:] == ["touched 0"],
            "a call that succeeds leaves its error as it was", result.summary())
tally.check(result.code == 0 and re.search("rank 1 is not a member of group narrow", "\n".join(lines(result, 1))),
            "the session goes on after mistakes", result.summary())

result = run([probe, "deadline", topology(2)], 2)
tally.check(result.code == 0 and len(lines(result, 0)) == 4 and re.fullmatch(
    r"wait: timeout, speak 1: still waiting after \d+ ms for rank 1: all_reduce_sum on group turned, sequence 0",
    lines(result, 0)[0]) and
            lines(result, 0)[1] == "reshape: invalid argument, speak 1: an operation that has not ended goes by the "
            "tensor's shape: reshape it when its completion is done" and lines(result, 0)[2:] == ["in time 1, pending 1", "finish: ok"],
            "a caller's deadline leaves the work under way", result.summary())

result = run([probe, "released", topology(2)], 2)
tally.check(result.code == 128 + signal.SIGABRT and not result.left and result.err.count(
    "ferry: error: the program that calls Ferry broke a rule: a completion is released while it is pending: wait for "
    "it, or abandon it (") == 1 and "completion.c:" in result.err, "a broken rule of memory is a sentence",
            result.summary())

for world in (1, 3):
    result = run([probe, "executors", topology(world)], world)
    for rank in range(world):
        said = lines(result, rank)
        tally.check(said[:1] == ["full: over a limit, speak 1: executor cpu/0: 2 pieces of work are unfinished, as many as "
                                 "it takes; wait for one of them"] and
                    said[1:] == ["load 2 of 2, session 2 of 4", "held 1, kept 1", "sum 0, used 0, given back 1",
                                 "idle 1, unknown 1"],
                    "executors order compute and a sum on rank %d of %d" % (rank, world), result.summary())
    tally.check(result.code == 0 and not result.left, "a job of %d with executors ends well" % world, result.summary())


def failed(scene, status, pattern, first=None, world=3, arguments=(), within=12.0, name=None, needed=None):
    """Every rank's calls end with one cause; one rank is told to speak; closing does not hang."""
    result = run([probe, scene, topology(world)] + list(arguments), world)
    wrong, sentences, speakers = [], set(), set()
    for rank in range(world):
        said = lines(result, rank)
        causes = [re.fullmatch(r"(\w+): (\w+), speak ([01]): (.*)", line) for line in said
                  if not line.startswith(("at", "stuck"))]
        if needed and needed.get(rank) not in said + [None]:
            wrong.append("rank %d does not say %s" % (rank, needed[rank]))
        wrong += ["rank %d says %s" % (rank, said)] if not causes or None in causes else []
        for cause in filter(None, causes):
            sentences.add(cause.group(2) + ": " + cause.group(4))
            speakers |= {rank} if cause.group(3) == "1" else set()
        if "at once 1" not in said and scene not in ("sums", "lingering"):
            wrong.append("rank %d: later calls did not fail at once" % rank)
    if len(sentences) != 1 or not re.search(pattern, "".join(sentences)):
        wrong.append("causes %s, expected one like %s" % (sentences, pattern))
    if len(speakers) != 1:
        wrong.append("ranks %s were told to speak" % speakers)
    if result.out.count("closed in time 1: " + status) < 1 or "in time 0" in result.out:
        wrong.append("not closed in time with " + status)
    if result.code != expecting.CODE.get(status, 6) or result.seconds > within or result.left:
        wrong.append("exit %s after %.1f s, left %s" % (result.code, result.seconds, result.left))
    tally.check(not wrong, name or "one cause for all: " + scene, "%s\n%s" % ("; ".join(wrong), result.summary()))


failed("fail", "storage", "^storage: rank 1: the tape is torn$")
failed("careless", "internal", r"^internal: rank 1: ferry_fail with status 0, which is no failure: two lines  \[1m$")
failed("torn", "storage", r"^storage: rank 1: executor cpu/0: the tape is torn$")
failed("odd", "internal", "^internal: rank 1: executor cpu/0: it returned -7, which is no status of ferry.h: "
       "the tape is torn$")
failed("lingering", "timeout", "^timeout: rank 1 has stood still for .*rank 1 waits in compute on executor cpu/0, sequence 0"
       "(; this work has run for [0-9.]+ s: between tiles it has to give a sign of life)?$",
       name="work that goes on when a session ends is named with its executor")
failed("reasonless", "storage", r"^storage: rank 1: no reason is given$")
failed("mismatch", "mismatch", r"^mismatch: .*turned.*(10.*11|11.*10)")
failed("silent", "timeout", r"^timeout: .*rank 1\b")
failed("polled", "timeout", r"^timeout: .*rank 1\b", needed={0: "stuck 1", 2: "stuck 1"})
os.mkdir(os.path.join(folder, "runs"))
failed("sums", "mismatch", r"^mismatch: .*turned.*rank 1\b", arguments=["fault:rank=1,op=9,kind=flip:48",
                                                                      "run_dir:" + os.path.join(folder, "runs")],
       name="a rehearsed fault is found, and named")
tally.check(sorted(os.listdir(os.path.join(folder, "runs"))) == ["cause.json"] + [
    "rank-00000%d.recorder" % rank for rank in range(3)], "run_dir holds recorders and the cause",
            str(os.listdir(os.path.join(folder, "runs"))))

# ---- opening -------------------------------------------------------------------------------------------


def refused(name, words, status, pattern, ranks=2, told=None):
    result = run(words, ranks)
    causes = re.findall(r"^rank -1: open: (.*)$", result.out, re.MULTILINE)
    good = len(causes) == (told or ranks) and len({re.sub("speak .", "", cause) for cause in causes}) == 1 and \
        result.code == expecting.CODE[status] and re.search(pattern, causes[0], re.DOTALL) and not result.left
    tally.check(good, "refused by name on every rank: " + name, result.summary())
    return causes


refused("another number of ranks", [probe, "sums", topology(3)], "topology", "is for 3 ranks, this job has 2: mpirun -n 3")
refused("a missing file", [probe, "sums", os.path.join(folder, "none.yaml")], "storage", "none.yaml")
refused("a fault's words", [probe, "sums", topology(2), "fault:rank=0,op=1,kind=sneeze"], "usage", "sneeze")
refused("options of another size", [probe, "size", topology(2)], "usage", "options of 3 bytes")
refused("nccl", [probe, "sums", topology(2), "communication.transport=nccl"], "model",
        "a program's lie in host memory; mpi moves them: open the file with the override communication.transport=mpi")
refused("native sums", [probe, "sums", topology(2), "communication.reduction=native"], "model",
        "open the file with the override communication.reduction=ordered")
workload = running.write_topology(folder, "work", {"data": 2}, {"model": "x", "prompts": ["y"]})
refused("a workload", [probe, "sums", workload], "topology", "has a workload, which `ferry run` works on")
causes = refused("one bad file", ["-n", "1", probe, "sums", topology(2), ":", "-n", "1", probe, "sums",
                                  os.path.join(folder, "none.yaml")], "storage", "rank 1.*none.yaml", None, told=2)
tally.check(sum("speak 1" in cause for cause in causes) == 1, "of a shared refusal one rank speaks", str(causes))
other = topology(2, "other", timeout="3s")
refused("different topologies", ["-n", "1", probe, "sums", topology(2), ":", "-n", "1", probe, "sums", other],
        "mismatch", r"communication\.timeout.*rank", None, told=2)

result = run([probe, "single", topology(2)], 2)
tally.check(result.code == 0 and len(re.findall(
    "open: environment, speak 1: the program initialised MPI with MPI_THREAD_SERIALIZED: .*MPI_THREAD_MULTIPLE",
    result.out)) == 2 and result.out.count("own MPI has 2 ranks") == 2,
            "a program whose MPI lacks MPI_THREAD_MULTIPLE is refused by name and goes on", result.summary())
result = run([probe, "twice", topology(2)], 2)
tally.check(result.code == 0 and result.out.count("close: ok") == 2 and len(re.findall(
    "open: environment, .*: MPI was finalised in this process, .* can open one session only", result.out)) == 2,
            "a second session without an MPI of the program's own is refused by name", result.summary())
result = run([probe, "again", topology(2)], 2)
tally.check(result.code == 0 and len(re.findall(
    "rank [01]: again: environment, speak 1: a session was opened in this process before, .* and Ferry initialised MPI "
    "for it: .* use that one, or, for several, call MPI_Init_thread with MPI_THREAD_MULTIPLE before the first",
    result.out)) == 2 and result.out.count("sum: ok") == 2,
            "a second session beside the first is refused by name, and the first goes on", result.summary())
result = run([probe, "forked", topology(2)], 2)
tally.check(result.code == 0 and len(re.findall(
    r"rank [01]: child: invalid argument, speak 1: this session is process \d+'s, and process \d+ was forked from it: only "
    "the process that has opened a session may use it", result.out)) == 10 and
            result.out.count("child: test 2, fail quiet") == 2 and result.out.count("sum: ok") == 2,
            "a forked process cannot use its parent's session, which goes on", result.summary())
result = run([probe, "multiple", topology(2)], 2)
tally.check(result.code == 0 and result.out.count("sum: ok") == 4 and result.out.count("close: ok") == 4 and
            result.out.count("own MPI has 2 ranks") == 2,
            "a program's own MPI lives on between two sessions and after them", result.summary())

# ---- the end of MPI ----------------------------------------------------------------------------------------

result = run([probe, "refused", topology(1)], 1)
tally.check(result.code == 5 and re.search("^rank 0: close: transport.*, speak 1: .*MPI_Ibarrier", result.out),
            "ferry_close returns what MPI says at its end", result.summary())
waiting.join()
tally.check(absent[0].code == 7 and lines(absent[0], 0) == [
    "close: timeout, speak 1: rank 0: not every rank has come to the end of MPI within 8.1 s: all had finished, and one "
    "was lost or stopped since"] and not absent[0].left, "ferry_close says that another rank missed the end",
            absent[0].summary())

alone = os.path.join(folder, "alone")
os.mkdir(alone)
shutil.copy(os.path.realpath(library), os.path.join(alone, "libferry.so.0"))
missing = run([probe, "sums", topology(2)], 2, {"FERRY_PLUGIN_DIR": folder, "LD_LIBRARY_PATH": alone})
tally.check(missing.code == 5 and re.search(r"ferry-mpi\.so is in none of %s, %s" % (folder, alone), missing.out), "a missing plugin is told with the folders that were searched", missing.summary())
tally.finish()
