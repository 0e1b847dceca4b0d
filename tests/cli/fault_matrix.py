"""The fault matrix: which faults are rehearsed in which phases of a run, and what each must end in.

Nothing here knows how a job is started, so that the matrix runs on one host and on several: a good run with a run_dir
tells the operations of each rank (its recorder's file), cases() makes the faults of them, wrong() judges a result.
"""

import collections
import glob
import json
import os
import struct

import expecting

KINDS = ("kill", "stop", "delay", "skip", "flip", "short")
# Phases of a run, in their order.  Building is local, so that its first sign to others is the first operation behind it.
PHASES = ("consensus: records", "consensus: keys", "building", "loading", "step: hidden", "step: token", "step: vote",
          "step: result", "closing: summary", "closing")
STARTUP = PHASES[:4]
GRACE = 10  # seconds beyond the timeout in which every rank must be gone

Operation = collections.namedtuple("Operation", "number operation object peer state sequence epoch bytes")
Case = collections.namedtuple("Case", "rank operation kind phase option codes needles within")

OPERATIONS = ("none", "all_reduce_sum", "all_gather_even", "all_gather_uneven", "variable_all_to_all", "broadcast",
              "barrier", "failure_agreement", "send_receive", "compute")
HEADER, RECORD, RECORDS, NEXT = 1024, 192, 256, 112  # of a recorder's file, as comm/recorder.c lays it out


def read_ring(path):
    """The operations of a recorder's file, oldest first."""
    with open(path, "rb") as file:
        data = file.read()
    following = struct.unpack_from("<Q", data, NEXT)[0]
    operations = []
    for number in range(max(0, following - RECORDS), following):
        at = HEADER + number % RECORDS * RECORD
        head, operation, _, peer, state, _, sequence, epoch, count = struct.unpack_from("<QIIiHHQQQ", data, at)
        name = data[at + 64:at + 128].split(b"\0")[0].decode()
        if head == number + 1:
            operations.append(Operation(number, OPERATIONS[operation], name, peer, state, sequence, epoch, count))
    if following > RECORDS:
        return operations
    # The work of executors is recorded among them, but faults do not count it.
    counted = [o for o in operations if o.operation != "compute"]
    return [o._replace(number=number) for number, o in enumerate(counted)]


def read_run(run_dir):
    """{rank: its operations} of the only run below run_dir."""
    rings = glob.glob(os.path.join(run_dir, "*", "rank-*.recorder"))
    return {int(os.path.basename(path)[5:11]): read_ring(path) for path in rings}


def phase_of(operation, first_step):
    """The phase that an operation belongs to; None: one that the matrix leaves out."""
    if operation.object == "consensus":
        return "consensus: records" if operation.operation == "all_gather_even" else "consensus: keys"
    if operation.object == "session":
        return "closing"
    route = operation.object.split("/")[0]
    if route in ("forward", "token", "result"):
        return {"forward": "step: hidden", "token": "step: token", "result": "step: result"}[route]
    if operation.operation == "failure_agreement":
        return "step: vote"
    if operation.number < first_step:
        return None
    return "closing: summary" if operation.object == "world/0" and operation.operation == "all_gather_even" else None


def phases(operations):
    """{phase: operation number} of one rank of a good run; of the phases of a step a later step's are taken."""
    first_step = next(o.number for o in operations if o.object.split("/")[0] == "forward")
    start = [o.number for o in operations if o.number < first_step and o.object not in ("consensus", "session")]
    found = {"building": start[0], "loading": start[-1]}
    steps = collections.defaultdict(list)
    for operation in operations:
        phase = phase_of(operation, first_step)
        if phase and phase.startswith("step"):
            steps[phase].append(operation.number)
        elif phase:
            found[phase] = operation.number
    for phase, numbers in steps.items():
        found[phase] = numbers[len(numbers) // 2]
    return {phase: found[phase] for phase in PHASES if phase in found}


def option(rank, operation, kind, timeout):
    """The text of --fault; a delay is one beyond the timeout, a flip damages the frame's sequence number."""
    words = {"delay": "delay:%ds" % (timeout + 4), "flip": "flip:48"}
    return "rank=%d,op=%d,kind=%s" % (rank, operation, words.get(kind, kind))


def expected(kind, rank, phase):
    """(names of the right exit codes, what the words must match): the culprit is named.  A rank that skips a vote takes
    it for one against; one that skips the prompts has none, which it refuses itself."""
    codes = {"kill": ["lost"], "stop": ["timeout"], "delay": ["timeout"], "skip": ["timeout", "mismatch", "lost"],
             "flip": ["mismatch"], "short": ["mismatch"]}
    allowed = codes[kind] + (["environment"] if kind == "skip" and phase in STARTUP else [])
    return allowed, [r"\brank %d\b" % rank]


def cases(operations, rank, timeout, startup_timeout, kinds=KINDS, only=None):
    """The matrix of one rank: kinds times the phases that it has (or those in only)."""
    made = []
    for phase, number in phases(operations).items():
        if only and phase not in only:
            continue
        limit = startup_timeout if phase in STARTUP else timeout
        for kind in kinds:
            codes, needles = expected(kind, rank, phase)
            made.append(Case(rank, number, kind, phase, option(rank, number, kind, limit), codes, needles,
                             limit + GRACE))
    return made


def name(case):
    return "%s of rank %d, %s (operation %d)" % (case.kind, case.rank, case.phase, case.operation)


def blamed(run_dir):
    """The rank in cause.json of the only run below run_dir; None: there is none."""
    found = glob.glob(os.path.join(run_dir, "*", "cause.json"))
    if len(found) != 1:
        return None
    with open(found[0], encoding="utf-8") as file:
        return json.load(file)["rank"]


def judge(tally, case, result, tokens, run_dir=None):
    """One check of everything that a failed run owes; tokens: those of the good run, by prompt.  run_dir: the cause on
    disk is looked at too.  Who left something out may have got the others to wait in a cycle, which is nobody's."""
    good = expecting.failure(tally, name(case), result, case.codes, *case.needles, within=case.within)
    if run_dir:
        rank = blamed(run_dir)
        good = tally.check(rank == case.rank or (case.kind == "skip" and rank == -1),
                           name(case) + ": cause.json blames it", "rank %s\n%s" % (rank, result.summary())) and good
    delivered = [o for o in result.objects() if o["tokens"] != tokens[o["prompt"]]]
    return tally.check(not delivered, name(case) + ": nothing wrong is delivered", result.summary()) and good


def table(ended):
    """ended: {(rank, phase, kind): text} as a table for a note."""
    lines = []
    for rank in sorted({rank for rank, _, _ in ended}):
        lines.append("%-22s %s" % ("rank %d" % rank, " ".join("%-12s" % kind for kind in KINDS)))
        for phase in PHASES:
            cells = [ended.get((rank, phase, kind), "-") for kind in KINDS]
            if any(cell != "-" for cell in cells):
                lines.append("%-22s %s" % (phase, " ".join("%-12s" % cell for cell in cells)))
    return "\n".join(lines)
