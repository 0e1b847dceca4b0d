"""ferry check: what it exercises, what it prints, and what it finds."""

import json
import os
import re
import shutil

import expecting
from expecting import running

LLAMA = os.path.join(running.TINY, "llama")
EXAMPLES = os.path.join(running.ROOT, "examples", "groups")
ALL = ["all_reduce_sum", "all_gather_even", "all_gather_uneven", "variable_all_to_all", "broadcast", "barrier",
       "failure_agreement"]
DTYPES = ["f32", "f16", "bf16", "f64", "i8", "u8", "i32", "u32", "i64", "u64", "bool"]
tally = running.Tally()
folder = running.scratch("check")


def check(path, ranks, arguments=(), timeout=60, **options):
    return running.mpirun(ranks, ["check", path] + list(arguments), timeout=timeout, **options)


def objects(result):
    """{kind: [objects]} of --json."""
    kinds = {}
    for line in result.out.splitlines():
        found = json.loads(line)
        kinds.setdefault(found["kind"], []).append(found)
    return kinds


def cases(operations, dtypes):
    """How many operations one group takes: by what docs/check.md says."""
    count = 0
    for operation in operations:
        if operation == "barrier":
            count += 1
        elif operation == "failure_agreement":
            count += 2
        else:
            sizes = [4 if i == 0 else 3 for i in range(len(dtypes))]
            if operation == "all_reduce_sum":
                sizes = sizes[:-1] if dtypes[-1] == "bool" else sizes
                count += sum(sizes)
            else:
                count += sum(sizes) * {"broadcast": 3}.get(operation, 2)  # roots, axes
    return count


# ---- what is exercised ---------------------------------------------------------------------------------

result = check(os.path.join(EXAMPLES, "evaluators.yaml"), 4, ["--json"])
if expecting.success(tally, "groups that overlap and a route pass", result):
    found = objects(result)
    head = found["check"][0]
    tally.check((head["name"], head["world"], head["passed"], head["failed"], head["not_reached"], head["exit_code"],
                 head["cause"]) == ("evaluators", 4, 4, 0, 0, 0, None), "the first line sums up", result.summary())
    tally.check(head["transport"] == "mpi" and "auto takes mpi: not every rank has a GPU" in head["chosen"] and "MPI" in head["about"] and
                head["plugin"].endswith("/ferry-mpi.so"), "the transport, and why", result.summary())
    expected = [("world/0", [0, 1, 2, 3], ALL, DTYPES),
                ("evaluators", [3, 1], ["all_gather_uneven", "barrier", "failure_agreement"], ["f32", "bf16"]),
                ("everyone-backwards", [3, 2, 1, 0], ALL, DTYPES)]
    for (name, members, operations, dtypes), group in zip(expected, found["group"]):
        tally.check((group["target"], group["members"], group["operations"], group["dtypes"], group["result"]) ==
                    (name, members, operations, dtypes, "pass"), "group %s as the file says" % name, str(group))
        tally.check(group["cases"] == cases(operations, dtypes) and group["seconds"] > 0,
                    "group %s: every operation, dtype and size" % name, "%s, expected %d" % (
                        group, cases(operations, dtypes)))
    route = found["route"][0]
    tally.check((route["target"], route["ends"], route["bundle"], route["cases"], route["result"]) ==
                ("tap", [3, 0], ["hidden", "positions"], 9, "pass"), "the route's bundle in three sizes", str(route))
    backend = found["backend"][0]
    tally.check(backend["name"] == "cpu" and {"F32", "F16", "Q4_K", "Q8_0"} < set(backend["products"]) and
                backend["flop_per_ns"] is None, "the backend's record; what is unknown is null", str(backend))
    host = found["host"][0]
    total = int(re.search(r"MemTotal:\s+(\d+) kB", open("/proc/meminfo", encoding="ascii").read()).group(1)) * 1024
    tally.check(len(found["host"]) == 1 and host["ranks"] == [0, 1, 2, 3] and host["name"] == os.uname().nodename and
                host["memory_total"] == total and 0 < host["memory_available"] <= total and
                host["simd"] in ("plain", "avx2", "avx512"), "the host, its memory, its SIMD path", str(host))

# Tensors that peers read where they lie: the same data.
result = check(os.path.join(EXAMPLES, "evaluators.yaml"), 4, ["--json"], extra_env={"FERRY_LEND": "all"})
if expecting.success(tally, "lent tensors pass", result):
    head = objects(result)["check"][0]
    tally.check((head["passed"], head["memory"]) == (4, "host memory, read in place by ranks of the host"),
                "all of them, from there", str(head))
result = check(os.path.join(EXAMPLES, "evaluators.yaml"), 4, extra_env={"FERRY_LEND": "yes"})
# Before the ranks can talk to each other: several may say it.
tally.check(result.code == expecting.CODE["environment"] and "FERRY_LEND is 'yes': say all, and" in result.err and
            "or auto, as without it" in result.err and not result.left, "lending is asked for clearly", result.summary())

result = check(os.path.join(EXAMPLES, "evaluators.yaml"), 4, extra_env={"FERRY_LEND": "auto"})
tally.check(result.code == 0 and re.search(
    r"^evaluators +group +pass +17 +[\d.]+ ms  3, 1 on \S+: all_gather_uneven, barrier, failure_agreement$", result.out,
    re.MULTILINE) and re.search(
        r"^everyone-backwards +group +pass +340 +[\d.]+ ms  3, 2, 1, 0 on \S+: every operation$", result.out,
        re.MULTILINE) and re.search(
            r"^tap +route +pass +9 +[\d.]+ ms  3 -> 0 on \S+: hidden f32\[rows 1\.\.64,576\], positions u32\[rows 1\.\.64\]$",
            result.out, re.MULTILINE) and "\n4 passed, 0 failed, 0 not reached\n" in result.out,
            "the table", result.summary())

for ranks, mesh in ((1, {"data": 1}), (2, {"tensor": 2}), (3, {"pipeline": 3}), (4, {"pipeline": 2, "tensor": 2})):
    path = running.write_topology(folder, "mesh-%d" % ranks, mesh)
    result = check(path, ranks, ["--json"])
    names = [o["target"] for o in objects(result).get("group", []) + objects(result).get("route", [])]
    expected = {1: ["world/0"], 2: ["world/0", "tensor/0"],
                3: ["world/0", "pipeline/0", "stage/0", "stage/1", "stage/2", "forward/0-1", "forward/1-2"],
                4: ["world/0", "tensor/0", "tensor/1", "pipeline/0", "pipeline/1", "stage/0", "stage/1", "forward/0-2",
                    "forward/1-3"]}[ranks]
    tally.check(result.code == 0 and names == expected, "every group and route of a mesh of %d ranks" % ranks,
                "%s\n%s" % (expected, result.summary()))

limited = running.write_topology(folder, "limited", None, world=2, groups=[
    {"name": "small", "members": [1, 0], "limits": {"max_bytes": "64B"}},
    {"name": "one", "members": [1]}])
result = check(limited, 2, ["--json"])
tally.check(result.code == 0 and [g["result"] for g in objects(result)["group"]] == ["pass"] * 3,
            "groups with narrow limits, and of one member", result.summary())

# ---- with a model --------------------------------------------------------------------------------------

workload = {"model": LLAMA, "prompts": ["t"]}
result = check(running.write_topology(folder, "model", {"pipeline": 2}, workload), 2, ["--json"])
if expecting.success(tally, "the boundaries of a model pass", result):
    bundles = {route["target"]: route["bundle"] for route in objects(result)["route"]}
    tally.check(bundles == {"forward/0-1": ["wave", "hidden"], "token/1-0": ["tokens"],
                            "result/1-0": ["count", "tokens", "digests", "top_ids", "top_logits"]},
                "the bundles that generation carries", str(bundles))
described = os.path.join(folder, "described")
os.mkdir(described)
shutil.copy(os.path.join(LLAMA, "config.json"), described)
result = check(running.write_topology(folder, "described", {"pipeline": 2}, dict(workload, model=described)), 2)
expecting.success(tally, "a model's description is enough", result)
result = check(running.write_topology(folder, "absent", {"pipeline": 2}, dict(workload, model="nowhere")), 2)
expecting.failure(tally, "a model that is not there", result, ["model", "storage"], "nowhere")

# ---- what is found -------------------------------------------------------------------------------------

pair = running.write_topology(
    folder, "pair", None, world=2,
    groups=[{"name": "turned", "members": [1, 0], "operations": ["all_reduce_sum", "barrier"], "dtypes": ["f32"]},
            {"name": "later", "members": [0, 1], "operations": ["barrier"]}],
    routes=[{"name": "tap", "from": 1, "to": 0, "extents": {"rows": "1..64"},
             "bundle": [{"role": "hidden", "dtype": "f32", "shape": ["rows", 64]}]}],
    communication={"timeout": "2s", "startup_timeout": "4s"})
# Operations of a rank in their order: the consensus' two, the hosts, then each target and a meeting.
WORLD = cases(ALL, DTYPES)
TURNED = 2 + 1 + WORLD + 1
TAP = TURNED + 5 + 1 + 1 + 1
reference = objects(check(pair, 2, ["--json"]))
tally.check([o["cases"] for o in reference["group"] + reference["route"]] == [WORLD, 5, 1, 9],
            "the cases that the faults count on", str(reference))


def finds(name, fault, status, target, pattern, within=15.0):
    """With the fault: the cause names the target, which failed; what came before passed, the rest was not reached."""
    result = check(pair, 2, ["--json", "--fault", fault])
    results = {o["target"]: o["result"] for o in sum((objects(result).get(kind, []) for kind in ("group", "route")), [])}
    order = ["world/0", "turned", "later", "tap"]
    at = order.index(target)
    expected = {t: "pass" if i < at else "failed" if i == at else "not_reached" for i, t in enumerate(order)}
    good = expecting.failure(tally, name, result, status, pattern, within=within)
    head = (objects(result).get("check") or [{}])[0]
    tally.check(good and results == expected and head.get("failed") == 1 and
                head.get("exit_code") == expecting.CODE[status] and re.search(pattern, head.get("cause", "")) and
                head.get("advice"), name + ": the table names the target", "%s, expected %s\n%s" % (
                    results, expected, result.summary()))


finds("a damaged header on a route", "rank=1,op=%d,kind=flip:48" % (TAP + 4), "mismatch", "tap",
      r"tap.*sequence: expected 4, got")
finds("a damaged payload that no checksum covers", "rank=1,op=%d,kind=flip:300:resealed" % (TAP + 8), "mismatch", "tap",
      r"^rank 0: route tap \(rank 1 to rank 0\), tensor hidden of 16384 bytes: byte 108 is \d+, expected \d+|"
      r"corrupt: rank 0: route tap")
finds("a damaged header in a group", "rank=0,op=%d,kind=flip:48" % (TURNED + 1), "mismatch", "turned", "turned")
finds("a stopped rank", "rank=1,op=%d,kind=stop" % (TAP + 2), "timeout", "tap", r"rank 1 has been silent.*tap.*\(check of tap\)")
result = check(pair, 2, ["--fault", "rank=1,op=2,kind=stop"])
expecting.failure(tally, "a rank that is stopped before the first target", result, "timeout",
                  r"rank 1 has been silent.*\(gathering what hosts can do\)", within=15.0)
finds("a rank that skips an operation", "rank=0,op=%d,kind=skip" % (TURNED + 4), "timeout", "turned", "turned")
finds("a rank without memory", "rank=1,op=%d,kind=oom" % (TURNED + 2), "environment", "turned",
      "^.*rank 1: rehearsed: no memory")
result = check(pair, 2, ["--fault", "rank=1,op=%d,kind=kill" % (TAP + 2)])
expecting.failure(tally, "a killed rank", result, "lost", r"rank 1 on \S+ died: killed by SIGKILL")
result = check(pair, 2, ["--fault", "rank=1,op=%d,kind=flip:300:resealed" % (TAP + 8), "--set",
                         "communication.integrity=payload"])
expecting.failure(tally, "with checksums the message is refused", result, "mismatch", "payload checksum", "tap +route +FAILED",
                  r"what to do: \S")

# ---- mistakes ------------------------------------------------------------------------------------------


def alone(arguments):
    return running.execute([running.FERRY, "check"] + arguments, timeout=30)


expecting.failure(tally, "no topology", alone([]), "usage", r"which topology\?  ferry check TOPOLOGY", printed=None)
expecting.failure(tally, "an unknown option", alone([pair, "--jason"]), "usage", "jason", printed=None)
expecting.failure(tally, "a fault that is none", alone([pair, "--fault", "rank=0,op=1,kind=x"]), "usage", "--fault",
                  printed=None)
expecting.failure(tally, "another number of ranks", check(pair, 3), "topology", r"mpirun -n 2 %s check" % running.FERRY)
result = alone(["--help"])
tally.check(result.code == 0 and "--json" in result.out and "Exit codes" in result.out, "--help", result.summary())
mixed = running.execute([running.MPIRUN, "--oversubscribe", "-n", "1", *running.RANK, running.FERRY, "check", pair, ":",
                         "-n", "1", *running.RANK, running.FERRY, "bench", pair], timeout=60)
expecting.failure(tally, "two commands in one job", mixed, "mismatch", r"option\.command")
result = running.execute(["bash", "-c", "exec %s check %s > /dev/full" % (running.FERRY, running.write_topology(
    folder, "single", None, world=1))], timeout=30)
expecting.failure(tally, "standard output that is full", result, "storage", "standard output")
tally.finish()
