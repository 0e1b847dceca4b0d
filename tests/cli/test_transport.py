"""Which transport a run takes, and why: what a machine has and lacks, on devices that are not there (tests/standin).

usage: test_transport.py choice | tokens | faults
STANDIN is the folder of the stand-in's libraries; without it (no CUDA at build time) what needs it is skipped.
"""

import os
import re
import sys

import expecting
from expecting import running

STANDIN = os.environ.get("STANDIN", "")
KJV = running.KJV
PROMPTS = ["In the beginning God created", "Blessed", "And it came to pass, that when the LORD had spoken unto Moses,"]
NEW = 8
folder = running.scratch("transport")
tally = running.Tally()
# A test runner may have put the stand-in in front already: the machine's own libraries are what is left.
OWN = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path and path != STANDIN]
BARE = {"LD_LIBRARY_PATH": os.pathsep.join(OWN) or None}
DEVICES = {"LD_LIBRARY_PATH": os.pathsep.join([STANDIN] + OWN)}


def topology(name, mesh, communication, **more):
    generate = {"model": KJV, "prompts": PROMPTS, "max_new_tokens": NEW, "ignore_eos": True}
    communication = dict({"timeout": "10s", "startup_timeout": "20s"}, **communication)
    return running.write_topology(folder, name, mesh, generate, communication=communication,
                                  placement={"threads": 1}, **more)


def run(mesh, communication, arguments=(), env=None, name="t", command="run", **more):
    return running.mpirun(running.world(mesh), [command, topology(name, mesh, communication, **more)] + list(arguments),
                          extra_env=env)


def each_rank(mesh, communication, envs):
    """One environment a rank."""
    path = topology("each", mesh, communication)
    command = [running.MPIRUN, "--oversubscribe"]
    for rank, env in enumerate(envs):
        command += [":"] if rank else []
        command += ["-n", "1"] + [word for pair in env.items() for word in ("-x", "%s=%s" % pair)]
        command += [running.FERRY, "run", path]
    return running.execute(command, extra_env=DEVICES)


# ---- no GPU ----------------------------------------------------------------------------------------------

def without():
    two = {"pipeline": 2}
    gpu = any(os.path.exists("/dev/" + name) for name in ("nvidia0", "nvidiactl"))
    if gpu:
        tally.skip("without a GPU", "this machine has one")
        return
    result = run(two, {"transport": "nccl"}, env=BARE)
    expecting.failure(tally, "nccl without a GPU says what is missing", result, "environment",
                      r"transport nccl: not every rank has a GPU: ranks 0, 1 on \S+: .*(ferry-cuda\.so|driver|device)",
                      within=20)
    result = run(two, {"transport": "auto"}, env=BARE)
    expecting.success(tally, "auto without a GPU takes mpi", result)
    tally.check(re.search(r": transport auto takes mpi: not every rank has a GPU: ranks 0, 1 on", result.err),
                "and says why", result.summary())
    result = run(two, {"transport": "auto", "reduction": "native"}, env=BARE)
    expecting.failure(tally, "native sums are refused where auto comes to mpi", result, "environment",
                      r"communication\.reduction: native: mpi offers no native sum, and transport auto takes mpi: not "
                      r"every rank has a GPU.*set it to ordered", within=20)
    result = run(two, {"transport": "mpi", "memory": "device"}, env=BARE)
    expecting.failure(tally, "device memory without a GPU says what is missing", result, "environment",
                      r"communication\.memory: device: not every rank has a GPU: ranks 0, 1 on \S+: .*(ferry-cuda|driver|"
                      r"device)", within=20)
    result = run(two, {"transport": "mpi", "reduction": "native"}, env=BARE)
    expecting.failure(tally, "native sums are refused on mpi by name", result, "topology",
                      r"communication\.reduction: mpi offers no native sum", within=20)


# ---- GPUs ------------------------------------------------------------------------------------------------

def chosen():
    two = {"pipeline": 2}
    memory = 3 << 28
    env = dict(DEVICES, FERRY_STANDIN_MEMORY=str(memory))
    for transport, why in (("nccl", "every rank has a GPU of its own"), ("auto", "every rank has a GPU of its own")):
        result = run(two, {"transport": transport}, ["--json"], env=env, command="check")
        if expecting.success(tally, "%s with a GPU a rank" % transport, result):
            head = [o for o in result.objects() if o["kind"] == "check"][0]
            tally.check(head["transport"] == "nccl" and head["chosen"] == why and "NCCL" in head["about"] and
                        head["plugin"].endswith("ferry-cuda.so"), "%s takes nccl, and says why" % transport, head)
            devices = [o for o in result.objects() if o["kind"] == "device"]
            tally.check([d["rank"] for d in devices] == [0, 1] and len({d["pci"] for d in devices}) == 2 and
                        all(d["memory_total"] == memory and 0 < d["memory_available"] <= memory for d in devices),
                        "each rank's device is told", devices)
            tally.check("bool" in devices[0]["copies"] and "f32" in devices[0]["sums"] and
                        not {"bool", "f16", "bf16"} & set(devices[0]["sums"]) and devices[0]["flop_per_ns"] is None,
                        "and what it can do", devices)
    result = run(two, {"transport": "auto"}, env=DEVICES)
    if expecting.success(tally, "a run with auto", result):
        tally.check("transport nccl: every rank has a GPU of its own" in result.err, "says its choice", result.summary())


def collisions():
    three = {"pipeline": 3}
    env = dict(DEVICES, FERRY_STANDIN_DEVICES="2")
    result = run(three, {"transport": "nccl"}, env=env)
    expecting.failure(tally, "more ranks than GPUs are refused before NCCL sees them", result, "environment",
                      r"NCCL refuses two ranks on one GPU: GPU [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0 on \S+: ranks "
                      r"0, 2", within=20)
    result = run(three, {"transport": "auto"}, env=env)
    if expecting.success(tally, "auto takes mpi there", result):
        tally.check(re.search(r": transport auto takes mpi: NCCL refuses two ranks on one GPU: .*ranks 0, 2",
                              result.err), "and names them", result.summary())


def staged():
    """Tensors in device memory where NCCL cannot be used: through pinned memory, and every place says so."""
    two = {"pipeline": 2}
    memory = "device memory, staged through pinned host memory"
    shared = dict(DEVICES, FERRY_STANDIN_DEVICES="1")
    result = run(two, {"memory": "device"}, ["--json"], env=shared, command="check")
    if expecting.success(tally, "check of device memory on one GPU", result):
        head = [o for o in result.objects() if o["kind"] == "check"][0]
        devices = [o for o in result.objects() if o["kind"] == "device"]
        tally.check(head["transport"] == "mpi" and head["memory"] == memory and
                    re.search("transport auto takes mpi, and tensors in device memory go through pinned memory of the host: "
                              r"NCCL refuses two ranks on one GPU: GPU \S+ on \S+: ranks 0, 1$", head["chosen"]) and
                    [d["rank"] for d in devices] == [0, 1] and len({d["pci"] for d in devices}) == 1,
                    "says which memory, and why", (head, devices))
    os.makedirs(os.path.join(folder, "broken"), exist_ok=True)
    with open(os.path.join(folder, "broken", "libnccl.so.2"), "w", encoding="utf-8") as broken:
        broken.write("no library")
    broken = {"LD_LIBRARY_PATH": os.pathsep.join([os.path.join(folder, "broken"), STANDIN] + OWN)}
    result = run(two, {"memory": "device"}, env=broken)
    if expecting.success(tally, "device memory without NCCL's library", result):
        tally.check(re.search(r": transport auto takes mpi, and .*: NCCL is missing on rank 0 \(\S+\): .*"
                              r"libnccl\.so\.2", result.err) and memory in result.err, "says what is missing",
                    result.summary())
    result = run(two, {"transport": "nccl"}, env=broken)
    expecting.failure(tally, "nccl without NCCL's library", result, "environment",
                      r"transport nccl: NCCL is missing on rank 0 .*libnccl\.so\.2", within=20)
    result = run(two, {"memory": "host"}, env=DEVICES)
    if expecting.success(tally, "host memory on a machine with GPUs", result):
        tally.check(result.err.count(": transport auto takes mpi: communication.memory: host\n") == 1 and
                    result.err.count("transport auto") == 1, "takes mpi, and says so once", result.summary())


def uneven():
    two = {"pipeline": 2}
    envs = [{}, {"CUDA_VISIBLE_DEVICES": "-1"}]
    result = each_rank(two, {"transport": "nccl"}, envs)
    expecting.failure(tally, "one rank without a GPU is named, with what it lacks", result, "environment",
                      r"transport nccl: not every rank has a GPU: rank 1 on ", within=20, absent=[r"ranks? 0(,| on)"])
    result = each_rank(two, {"transport": "auto"}, envs)
    if expecting.success(tally, "auto then takes mpi on all ranks", result):
        tally.check(re.search(r": transport auto takes mpi: not every rank has a GPU: rank 1 on ",
                              result.err), "and names the rank", result.summary())
    result = each_rank(two, {"transport": "auto"}, [{"FERRY_STANDIN_DRIVER": "12080"}] * 2)
    if expecting.success(tally, "a driver that is too old leaves mpi", result):
        tally.check(re.search(r"transport auto takes mpi: .*driver", result.err), "and is said", result.summary())


def hanging():
    env = dict(DEVICES, FERRY_STANDIN_FAULT="rank=1,kind=init")
    result = run({"pipeline": 2}, {"transport": "nccl", "startup_timeout": "3s"}, env=env)
    expecting.failure(tally, "a communicator that is never built ends in time", result,
                      "timeout",
                      r"ranks 0 and 1 did not build the communicator of 2 ranks", within=25)


def choice():
    without()
    if not STANDIN:
        tally.skip("with GPUs", "CUDA was not found at build time")
        return
    chosen()
    collisions()
    staged()
    uneven()
    hanging()


# ---- tokens ----------------------------------------------------------------------------------------------

def digests(mesh, communication, env=None):
    result = run(mesh, communication, ["--json", "--logits-digest", "--quiet"], env=env or BARE,
                 compute={"pieces": 2})
    return [(o["logits_digest"], o["text"]) for o in result.objects()] if result.code == 0 else None, result


STAGED = ({"memory": "device"}, {"transport": "mpi", "memory": "device", "integrity": "payload"})


def tokens():
    if not STANDIN:
        tally.skip("tokens over nccl", "CUDA was not found at build time")
        return
    for mesh in ({"pipeline": 2}, {"tensor": 2}, {"pipeline": 2, "tensor": 2}, {"data": 2}):
        expected, result = digests(mesh, {"transport": "mpi"})
        tally.check(expected and len(expected) == len(PROMPTS), "%s over mpi" % mesh, result.summary())
        got, result = digests(mesh, {"transport": "nccl", "reduction": "ordered"}, DEVICES)
        tally.check(got == expected, "%s over nccl: the same tokens and logits" % mesh, result.summary())
        for keys in STAGED if len(mesh) == 1 and "data" not in mesh else ():
            got, result = digests(mesh, keys, dict(DEVICES, FERRY_STANDIN_DEVICES="1"))
            tally.check(got == expected, "%s on one GPU, %s: the same tokens and logits" % (mesh, keys), result.summary())
    natively()


def logits(mesh, communication, env):
    """Of each prompt the best logits of each token, and the text."""
    result = run(mesh, communication, ["--json", "--top-logits=8", "--quiet"], env=env, compute={"pieces": 3})
    return ({o["prompt"]: o for o in result.objects()} if result.code == 0 else {}), result


def natively():
    """Three addends in another order: not the same bits, but within what three roundings of f32 can do."""
    mesh = {"tensor": 3}
    expected, _ = logits(mesh, {"transport": "nccl", "reduction": "ordered"}, DEVICES)
    for reduction in ("native", "auto"):
        got, result = logits(mesh, {"transport": "nccl", "reduction": reduction}, DEVICES)
        if not tally.check(got and [o["text"] for o in got.values()] == [o["text"] for o in expected.values()],
                           "reduction %s: the same text" % reduction, result.summary()):
            continue
        worst = max(abs(ours[token] - theirs[token]) for prompt in expected
                    for ours, theirs in zip(*(map(dict, o[prompt]["top_logits"]) for o in (expected, got)))
                    for token in ours.keys() & theirs.keys())
        tally.check(0 < worst < 1e-3, "reduction %s: other bits, near ones" % reduction, worst)


# ---- faults ----------------------------------------------------------------------------------------------

FAULTS = [
    ("a flipped byte of a header", "rank=0,op=1,kind=flip:8", "mismatch",
     r"route forward/0-1 \(rank 0 to rank 1\), step 0, stage 1, .*tensor hidden: in band: header bytes: expected 192, "
     r"got 193"),
    ("a rank that dies in NCCL", "rank=1,op=3,kind=kill", "lost",
     r"rank 1 on \S+ died: killed by SIGKILL"),
    ("an asynchronous error", "rank=0,op=3,kind=error", "lost",
     r"rank 0: NCCL, asynchronously failed: remote process"),
    ("a send that is short", "rank=0,op=2,kind=short:4", "timeout",
     r"rank 1 waits for rank 0 in send_receive on forward/0-1, sequence 2"),
    ("a device that falls off the bus", "rank=1,op=9,kind=lost", "environment", r"rank 1: .*cuda\w+: "),
    ("a transfer that is later than the timeout", "rank=0,op=3,kind=delay:15000", "timeout",
     r"rank 1 waits for rank 0 in send_receive on forward/0-1"),
]


def staged_faults():
    """Device memory whose buffers MPI does not give back after a failure: the job ends all the same."""
    env = dict(DEVICES, FERRY_STANDIN_DEVICES="1")
    for name, fault, code, words in (
            ("staged: a flipped byte of a header", "rank=0,op=6,kind=flip:8", "mismatch",
             r"\(rank 0 to rank 1\), .*expected .*, got "),
            ("staged: a rank that dies", "rank=1,op=9,kind=kill", "lost", r"rank 1 on \S+ died: killed by SIGKILL")):
        result = run({"tensor": 2}, {"memory": "device", "timeout": "4s"}, ["--quiet", "--fault", fault], env=env)
        expecting.failure(tally, name, result, code, words, within=25)
    result = run({"pipeline": 2}, {"memory": "device", "timeout": "4s"}, ["--quiet"],
                 env=dict(env, FERRY_STANDIN_FAULT="rank=1,op=9,kind=lost"))
    expecting.failure(tally, "staged: a device that falls off the bus", result, "environment",
                      r"rank 1: .*cuda\w+: ", within=20)


def faults():
    if not STANDIN:
        tally.skip("faults over nccl", "CUDA was not found at build time")
        return
    keys = {"transport": "nccl", "timeout": "4s", "reduction": "ordered"}
    for name, fault, code, words in FAULTS:
        result = run({"pipeline": 2}, keys, ["--quiet"], env=dict(DEVICES, FERRY_STANDIN_FAULT=fault))
        expecting.failure(tally, name, result, code, words, within=20)
    result = run({"pipeline": 2}, dict(keys, integrity="payload"), ["--quiet"],
                 env=dict(DEVICES, FERRY_STANDIN_FAULT="rank=0,op=1,kind=flip:700"))
    expecting.failure(tally, "a flipped byte of a payload, with checksums", result, ["mismatch"],
                      r"route forward/0-1 .*tensor hidden.*checksum", within=20)
    staged_faults()
    expected = run({"pipeline": 2}, {"transport": "mpi"}, ["--quiet"], env=BARE)
    result = run({"pipeline": 2}, keys, ["--quiet"],
                 env=dict(DEVICES, FERRY_STANDIN_FAULT="rank=0,op=3,kind=delay:1500"))
    if expecting.success(tally, "a transfer that is late within the timeout", result):
        tally.check(result.out == expected.out, "changes nothing", result.summary())


if __name__ == "__main__":
    {"choice": choice, "tokens": tokens, "faults": faults}[sys.argv[1]]()
    tally.finish()
