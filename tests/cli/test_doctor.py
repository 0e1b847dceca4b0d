"""`ferry doctor`: what it says of finished, running, hung, failed jobs, of damaged files, and of files made here."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

import expecting
import fault_matrix
from expecting import running

MODEL = os.path.join(running.TINY, "llama-10-layers")
PROMPTS = ["t", "there is a line"]
tally = running.Tally()
folder = running.scratch("doctor")


def command(mesh, name, faults=(), **communication):
    """(mpirun's command, the run_dir of the job)."""
    where = os.path.join(folder, name)
    path = running.write_topology(
        folder, name, mesh, {"model": MODEL, "prompts": PROMPTS, "max_new_tokens": 4, "ignore_eos": True},
        run_dir=where, communication={"timeout": "3s", "startup_timeout": "8s", **communication})
    options = [word for fault in faults for word in ("--fault", fault)]
    return running.mpirun_command(running.world(mesh), ["run", path, "--json"] + options), where


def doctor(where, *arguments):
    return running.execute([running.FERRY, "doctor", where] + list(arguments), timeout=30)


def consult(where):
    """What --json says, by kind; the one run as a dictionary, ranks in their order."""
    result = doctor(where, "--json")
    lines = [json.loads(line) for line in result.out.splitlines()]
    by = {kind: [line for line in lines if line["kind"] == kind]
          for kind in ("run", "cause", "rank", "cycle", "end", "note", "advice")}
    if not tally.check(result.code == 0 and len(by["run"]) == 1 and not result.err, "the doctor answers for " + where,
                       result.summary()):
        return None
    by["run"] = by["run"][0]
    return by


def only_run(where):
    runs = os.listdir(where)
    return os.path.join(where, runs[0]) if len(runs) == 1 else None


def check(good, name, said):
    tally.check(good, name, json.dumps(said, indent=1) if not isinstance(said, str) else said)


# ---- real jobs -----------------------------------------------------------------------------------------


def finished():
    start, where = command({"pipeline": 2}, "finished")
    expecting.success(tally, "a job that ends well", running.execute(start, timeout=60))
    said = consult(where)
    rings = fault_matrix.read_run(where)
    if said:
        check(said["run"]["verdict"] == "ended well" and not said["run"]["moving"] and said["run"]["size"] == 2,
              "a finished job ended well", said)
        check([r["life"] for r in said["rank"]] == ["ended"] * 2 and not said["end"] and not said["cause"],
              "its ranks have ended and wait for nobody", said)
        for rank, operations in rings.items():
            last, told = operations[-1], said["rank"][rank]
            check(told["operations"] == last.number + 1 and told["last"]["object"] == last.object and
                  told["last"]["operation"] == last.operation, "the last operation of rank %d" % rank, said)
    # A second, later run is the one that is looked at; its folder by name is the same page.
    time.sleep(0.05)
    first = only_run(where)
    running.execute(start, extra_env={"FERRY_RUN_ID": "later"}, timeout=60)
    said = consult(where)
    if said:
        check(said["run"]["folder"].endswith("finished-later") and said["run"]["other_runs"] == 1,
              "of two runs the newest is shown, and that there is another", said)
    page = doctor(first)
    tally.check(page.code == 0 and "verdict    ended well" in page.out and first in page.out and
                "beside it" not in page.out, "one run by its own folder", page.summary())


def running_and_late():
    start, where = command({"pipeline": 2}, "late", ["rank=1,op=16,kind=delay:12s"], timeout="20s")
    job = running.Run(start)
    job.until(lambda: "waiting for" in job.text(job.err))
    said = consult(where)
    page = doctor(where)
    if said:
        zero, one = said["rank"]
        check(said["run"]["moving"] and said["run"]["verdict"] == "waiting", "a job that waits", said)
        check(zero["life"] == "running" and zero["waits"]["for"] == 1 and zero["waits"]["seconds"] > 4 and
              zero["waits"]["object"] == "token/1-0", "rank 0 waits for rank 1, and where", said)
        check(one["life"] == "running" and "waits" not in one, "rank 1 lives and waits for nobody", said)
        check(said["end"] and said["end"][0]["rank"] == 1 and said["end"][0]["chain"] == "0 -> 1",
              "at the end of the chain stands rank 1", said)
    tally.check("1 rank waits for rank 1 (running" in page.out, "the page says the same", page.summary())
    result = job.finish(60)
    expecting.success(tally, "the late job", result)
    lines = [line for line in result.err.splitlines() if "waiting for" in line]
    tally.check(len(lines) == 1 and "rank 1 works" in lines[0] and "rank 0 waits for rank 1 in send_receive on token/1-0"
                in lines[0], "rank 0 says once for whom the run waits", result.summary())


def stopped():
    """Rank 3 is stopped; 0, 1 and 2 wait one for another and at last for it."""
    mesh = {"pipeline": 4}
    start, where = command(mesh, "stopped", ["rank=3,op=12,kind=stop"], timeout="12s")
    job = running.Run(start)
    job.until(lambda: "waiting for" in job.text(job.err))
    said = consult(where)
    page = doctor(where)
    if said:
        check([r["life"] for r in said["rank"]] == ["running"] * 3 + ["silent"], "three run, rank 3 is silent", said)
        check(said["run"]["verdict"] == "waiting" and not said["cycle"], "no cycle of waits", said)
        suspects = [end for end in said["end"] if end["suspect"]]
        check(len(suspects) == 1 and suspects[0]["rank"] == 3 and suspects[0]["waiting"] == 3,
              "all wait for rank 3 in the end", said)
    tally.check("3 ranks wait for rank 3 (silent, process " in page.out and
                "process    rank 3: process %d is stopped" % job.pair(3)[1] in page.out,
                "the page says whom to look at", page.summary())
    copy = os.path.join(folder, "copy")
    shutil.copytree(only_run(where), copy)
    result = job.finish(60)
    expecting.failure(tally, "rank 3 of a chain of 4 is stopped", result, "timeout", r"rank 3 has been silent",
                      r"waiting for 5\.\d s: rank 3 does not answer", within=12 + fault_matrix.GRACE,
                      absent=[r"rank [012] has been silent"])
    said = consult(where)
    if said:
        check(said["run"]["verdict"] == "failed" and said["cause"][0]["rank"] == 3 and
              said["cause"][0]["exit_code"] == 7, "afterwards the cause is there", said)
        check([r["life"] for r in said["rank"][:3]] == ["failed"] * 3 and
              all(r["waits"]["for"] in (3, i - 1) for i, r in enumerate(said["rank"][:3])),
              "what the others waited for is kept", said)
    without_ring(copy)


def without_ring(copy):
    """Rank 3 of the stopped chain, from the files of the others alone; the copy stands for another machine."""
    path = os.path.join(copy, "rank-000003.recorder")
    ring = fault_matrix.read_ring(path)
    own = [o for o in ring if o.state == 2]
    os.remove(path)
    page, said = doctor(copy), consult(copy)
    if not said:
        return
    check(said["rank"][3]["life"] == "no file" and said["run"]["verdict"] == "gone", "rank 3 has left no file", said)
    end = [end for end in said["end"] if end["rank"] == 3]
    sent = [o for o in ring if o.object == "token/3-0"][-1]  # it has come, noticed by its sender or not
    received = [o for o in own if o.object == "forward/2-3"][-1]
    check(end and "rank 0 waits for it in send_receive on token/3-0" in end[0]["witnesses"] and
          "sequence %d there was done with it" % sent.sequence in end[0]["witnesses"],
          "rank 0 tells what it had of it last", said)
    check(end and "rank 2 saw of it: send_receive on forward/2-3 with rank 3, sequence" in end[0]["witnesses"] and
          received.sequence >= 0, "rank 2 too", said)
    tally.check("rank 3 has left no file" in page.out and "run_dir must be shared" in page.out, "and what to do",
                page.summary())


def killed():
    start, where = command({"pipeline": 2}, "killed", ["rank=1,op=12,kind=kill"])
    running.execute(start, timeout=60)
    said = consult(where)
    if said:
        check(said["run"]["verdict"] == "failed" and said["cause"][0]["exit_code"] == 8 and
              said["cause"][0]["rank"] == 1, "a killed rank is the cause", said)
        check(said["rank"][1]["life"] == "killed" and said["rank"][1]["signal"] == "KILL", "and by which signal", said)
        check(any("SIGKILL" in advice["text"] for advice in said["advice"]), "and what that means mostly", said)


# ---- files made here -----------------------------------------------------------------------------------

MAGIC, VERSION, RUNNING, CLOSED, FAILED, KILLED = b"FERRYREC", 2, 0, 1, 2, 3
START = 1_700_000_000 * 10**9


def ring(rank, size, waits=None, seen=10.0, end=RUNNING, detail=0, version=VERSION, phase=b"step 5", start=START):
    """A recorder's file as comm/recorder.c lays it out.  waits: (peer, object, sequence, since); seconds since start."""
    data = bytearray(fault_matrix.HEADER + fault_matrix.RECORD * fault_matrix.RECORDS)
    data[0:8] = MAGIC
    struct.pack_into("<IIIIIi", data, 8, version, 256, 192, rank, size, 4242 + rank)
    data[32:32 + 5] = b"node%d" % rank
    struct.pack_into("<QQQII", data, 96, start, int(seen * 1e9), 0, end, detail)
    struct.pack_into("<Q", data, 128, int(seen * 1e9) if end else 0)
    if waits:
        peer, name, sequence, since = waits
        struct.pack_into("<IIIiQQQ", data, 256, 1, 1, 7, peer, sequence, int(since * 1e9), 77)
        data[296:296 + len(name)] = name
    data[360:360 + len(phase)] = phase
    return bytes(data)


def lay(name, rings, cause=None):
    where = os.path.join(folder, name)
    os.makedirs(where)
    for number, data in rings.items():
        with open(os.path.join(where, "rank-%06d.recorder" % number), "wb") as file:
            file.write(data)
    if cause is not None:
        with open(os.path.join(where, "cause.json"), "wb") as file:
            file.write(cause)
    return where


def cycle():
    waits = {0: 2, 1: 0, 2: 3, 3: 2}
    where = lay("cycle", {rank: ring(rank, 4, (peer, b"tensor/%d" % rank, 9, 4.0)) for rank, peer in waits.items()})
    said, page = consult(where), doctor(where)
    if said:
        check([c["ranks"] for c in said["cycle"]] == [[2, 3]], "2 and 3 wait for each other", said)
        check(said["rank"][1]["waits"] == {"for": 0, "operation": "all_reduce_sum", "object": "tensor/1", "sequence": 9,
                                           "seconds": 6.0}, "a wait with its numbers", said)
        check(said["run"]["verdict"] == "gone" and not said["run"]["moving"], "nobody moves", said)
    tally.check("cycle      2 -> 3 -> 2" in page.out and "different orders" in page.out, "the page names the cycle",
                page.summary())


def silent():
    rings = {0: ring(0, 3, (1, b"world/0", 4, 2.0)), 1: ring(1, 3, (2, b"world/0", 4, 2.0)),
             2: ring(2, 3, (0, b"world/0", 3, 1.0), seen=2.0)}
    said = consult(lay("silent", rings))
    if said:
        check([r["life"] for r in said["rank"]] == ["gone", "gone", "silent"] and
              said["rank"][2]["last_sign_seconds"] == 8.0, "rank 2 fell silent 8 s before the others", said)
        check(not said["cycle"] and said["end"][0]["rank"] == 2 and said["end"][0]["waiting"] == 2,
              "its own old wait makes no cycle", said)


def damaged():
    good = ring(0, 4, (1, b"world/0", 4, 2.0))
    wild = bytearray(ring(1, 4, phase=b"\x1b]0;x\x07" + b"\xff" * 56))
    struct.pack_into("<i", wild, 268, 2**31 - 1)
    rings = {0: good, 1: bytes(wild), 2: ring(2, 4)[:5000], 3: os.urandom(50176), 7: ring(7, 9), 8: ring(2, 4),
             9: b"", 10: ring(3, 4, version=1)}
    said, page = consult(lay("damaged", rings, b'{"status": "timeout", "exit_code": 1e99, "rank": 99999999999, "text": [}')
                         ), doctor(os.path.join(folder, "damaged"))
    if said:
        lives = [r["life"] for r in said["rank"]]
        check(lives == ["gone", "gone", "unreadable", "unreadable"], "what can be read is shown", said)
        notes = "\n".join(note["text"] for note in said["note"])
        for word in ("cut short: 5000 bytes", "does not begin with FERRYREC", "of version 1; this ferry reads version 2",
                     "rank-000007.recorder is of another run (rank 7 of 9)",
                     "rank-000008.recorder holds rank 2 of 4, whose file is rank-000002.recorder",
                     "cause.json cannot be read"):
            check(word in notes, "noted: " + word, said)
    tally.check("\x1b" not in page.out and page.code == 0, "no control character reaches the terminal", page.summary())
    tally.check("none has said why" not in page.out and "the cause that was written cannot be read" in page.out,
                "a cause that cannot be read is no missing one", page.summary())
    for number, cause in enumerate((b'{"text": "\x1b]0;owned\x07"}', b'{"\xc2\x9b31m', b"\x1b[2J", b"", b"[]")):
        page = doctor(lay("cause-%d" % number, {0: ring(0, 1, end=FAILED, detail=12)}, cause))
        tally.check(page.code == 0 and "failed: the cause that was written cannot be read" in page.out and
                    "cause.json cannot be read: " in page.out and not any(c in page.out for c in "\x1b\x07\x9b"),
                    "a damaged cause: %r" % cause, page.summary())
    page = doctor(lay("no-cause", {0: ring(0, 1, end=FAILED, detail=12)}))
    tally.check("failed: no cause was written" in page.out, "no cause", page.summary())
    said = consult(lay("misnamed", {3: ring(1, 2)}))
    if said:
        check({"no file"} == {r["life"] for r in said["rank"]} and
              any("rank-000003.recorder holds rank 1 of 2" in note["text"] for note in said["note"]),
              "a file alone under another's name", said)
    # The same, with each byte of a file changed by turns.
    where = lay("flipped", {1: ring(1, 2)})
    for at in list(range(0, 440, 7)) + [1024, 1208]:
        data = bytearray(ring(0, 2, (1, b"world/0", 4, 2.0)))
        data[at] ^= 0xff
        with open(os.path.join(where, "rank-000000.recorder"), "wb") as file:
            file.write(data)
        result = running.execute([running.FERRY, "doctor", where, "--json"], timeout=30)
        if result.code != 0 or not all(json.loads(line) for line in result.out.splitlines()):
            check(False, "byte %d changed" % at, result.summary())


def causes():
    where = lay("causes", {0: ring(0, 2, end=FAILED, detail=12), 1: ring(1, 2, end=KILLED, detail=signal.SIGSEGV)},
                json.dumps({"status": "rank lost", "exit_code": 8, "rank": 1, "reporter": 1, "text": "rank 1 \u001b died",
                            "last_operation": "barrier on world/0 \u009b", "epoch": 3, "seconds": 9.5}).encode())
    said, page = consult(where), doctor(where)
    if said:
        check(said["cause"][0]["text"] == "rank 1   died" and said["cause"][0]["seconds"] == 9.5 and
              said["rank"][0]["status"] == "timeout" and said["rank"][1]["signal"] == "SEGV", "cause and ends", said)
    tally.check("told by rank 1" in page.out and "barrier on world/0 ?\n" in page.out and "killed: SIGSEGV" in page.out,
                "on the page too", page.summary())


def culprits():
    """A known cause: neither a file of MPI's start nor the culprit's old wait says otherwise."""
    told = {"status": "timeout", "exit_code": 7, "rank": 1, "reporter": 0, "text": "rank 1 has been silent",
            "epoch": 3, "seconds": 9.5}
    where = lay("culprit", {0: ring(0, 2, (1, b"world/0", 4, 2.0), end=FAILED, detail=12),
                            1: ring(1, 2, (0, b"world/0", 3, 1.0), end=KILLED, detail=signal.SIGTERM)},
                json.dumps(told).encode())
    said, page = consult(where), doctor(where)
    if said:
        check(not said["cycle"] and said["end"][0]["rank"] == 1, "the culprit's old wait makes no cycle", said)
    tally.check("different orders" not in page.out and "rank 1 did not go on" in page.out, "nor the advice for one",
                page.summary())
    where = lay("start", {}, json.dumps({**told, "text": "rank 1 has been stopped"}).encode())
    for rank in range(2):
        with open(os.path.join(where, "rank-%06d.starting" % rank), "w", encoding="utf-8") as file:
            file.write("node%d\n2\n" % rank)
    said, page = consult(where), doctor(where)
    if said:
        check(said["run"]["verdict"] == "failed" and said["cause"][0]["rank"] == 1, "a cause at MPI's start", said)
    tally.check("verdict    failed: timeout, exit code 7" in page.out and "rank 1 has been stopped" in page.out and
                "were their host" not in page.out and "MPI itself is starting" not in page.out,
                "the page tells it", page.summary())
    page = doctor(lay("outside", {rank: ring(rank, 2, (1 - rank, b"world/0", 4, 9.0), end=KILLED, detail=signal.SIGTERM)
                                  for rank in range(2)}))
    tally.check("failed: ended from outside, by SIGTERM; no rank failed" in page.out and "who ended the job?" in page.out,
                "a job that was ended from outside", page.summary())


def many():
    size = 3000
    rings = {rank: ring(rank, size, (rank + 1, b"pipeline/0", 4, 2.0) if rank + 1 < size else None) for rank in range(size)}
    page = doctor(lay("many", rings))
    tally.check(page.code == 0 and "and 2960 more ranks" in page.out and len(page.out.splitlines()) < 70 and
                "0 -> 1 -> 2 -> 3 -> ... -> 2995 -> 2996 -> 2997 -> 2998 -> 2999" in page.out,
                "3000 ranks fit on a page", page.summary())


def mistakes():
    os.makedirs(os.path.join(folder, "empty", "below"))
    with open(os.path.join(folder, "file"), "w", encoding="utf-8"):
        pass
    for name, where, needle in (("a folder that is not there", "nowhere", "No such file"),
                                ("a file", "file", "Not a directory"), ("a folder without runs", "empty", "holds no run")):
        result = doctor(os.path.join(folder, where))
        expecting.failure(tally, name, result, "storage", needle, r"expected the run_dir of a topology \(.* runs beside it\)")
    for arguments in ([], ["a", "b"], ["--nope", "a"]):
        result = running.execute([running.FERRY, "doctor"] + arguments, timeout=30)
        tally.check(result.code == 2 and "ferry doctor" in result.err, "usage: %s" % arguments, result.summary())
    with open("/dev/full", "w", encoding="utf-8") as full:
        for words in (["doctor", os.path.join(folder, "cycle")], ["doctor", "--help"]):
            done = subprocess.run([running.FERRY] + words, stdout=full, stderr=subprocess.PIPE, check=False)
            tally.check(done.returncode == 9 and b"standard output: No space left" in done.stderr,
                        "a full disk under %s" % words, done.stderr.decode())


def main():
    for case in (finished, running_and_late, stopped, killed, cycle, silent, damaged, causes, culprits, many, mistakes):
        case()
    tally.finish()


if __name__ == "__main__":
    sys.exit(main())
