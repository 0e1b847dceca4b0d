"""Keepers that are stopped or killed under a real mpirun: the run ends, in time, and somebody says of what."""

import json
import os
import signal
import sys

import expecting
from expecting import running

MODEL = os.path.join(running.TINY, "llama-10-layers")
tally = running.Tally()
folder = running.scratch("keepers")


def start(name, ranks=2, delay="%ds" % (2 + running.PATIENCE), operation=16, **communication):
    """A run that stands for a while in one operation; comes back when it does.  (the run, its run_dir)"""
    where, last = os.path.join(folder, name), min(1, ranks - 1)
    path = running.write_topology(
        folder, name, {"pipeline": ranks}, {"model": MODEL, "prompts": ["t"], "max_new_tokens": 6, "ignore_eos": True},
        run_dir=where, communication={"timeout": "20s", **communication})
    job = running.Run(running.mpirun_command(ranks, ["run", path, "--json", "--fault",
                                                     "rank=%d,op=%d,kind=delay:%s" % (last, operation, delay)]))
    job.until(lambda: os.path.isdir(where) and any(
        b"step " in running._read(os.path.join(where, run, "rank-%06d.recorder" % last)) for run in os.listdir(where)))
    return job, where


def doctor(where):
    result = running.execute([running.FERRY, "doctor", where, "--json"], timeout=30)
    lines = [json.loads(line) for line in result.out.splitlines()]
    return result, {kind: [line for line in lines if line["kind"] == kind] for kind in ("run", "cause", "process")}


def stopped():
    """Both keepers: without them no end would ever be seen, and mpirun wait for ever."""
    job, where = start("stopped")
    keepers = {rank: pair[0] for rank, pair in job.ranks().items()}
    for keeper in keepers.values():
        os.kill(keeper, signal.SIGSTOP)
    result, said = doctor(where)
    tally.check({line["text"] for line in said["process"]} == {
        "rank %d: its keeper, process %d, is stopped: kill -CONT %d continues a stopped one" % (rank, pid, pid)
        for rank, pid in keepers.items()} and len(keepers) == 2, "the doctor sees stopped keepers", result.summary())
    page = running.execute([running.FERRY, "doctor", where], timeout=30)
    tally.check("process    rank 0: its keeper, process %d, is stopped" % keepers[0] in page.out and
                "nobody's end is seen" in page.out, "so does its page", page.summary())
    result = job.finish(30)
    expecting.success(tally, "a run whose keepers are stopped ends well", result, within=25)
    tally.check(len(result.objects()) == 1, "with its text", result.summary())


def stopped_and_dead():
    """A rank's death continues its keeper, which tells it as if it had never been stopped."""
    job, _ = start("dead", delay="60s")
    keeper, worker = job.pair(1)
    os.kill(keeper, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    expecting.failure(tally, "a rank that dies under a stopped keeper", job.finish(40), "lost",
                      r"rank 1 on \S+ died: killed by SIGKILL", within=15)


def stopped_and_dead_alone():
    """Nobody else could find the only rank silent: its death continues the keeper, which tells it."""
    job, where = start("alone", 1, delay="60s", operation=9)
    keeper, worker = job.pair(0)
    os.kill(keeper, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    expecting.failure(tally, "the only rank dies under a stopped keeper", job.finish(40), "lost",
                      r"rank 0 on \S+ died: killed by SIGKILL; its last operation: ", within=15)
    said = doctor(where)[1]
    tally.check([cause["rank"] for cause in said["cause"]] == [0], "and is in cause.json", json.dumps(said, indent=1))


def killed(ranks, victim):
    job, where = start("killed-%d-%d" % (ranks, victim), ranks, delay="60s")
    os.kill(job.pair(victim)[0], signal.SIGKILL)
    result = job.finish(40)
    said = doctor(where)[1]
    name = "rank %d of %d, whose keeper is killed" % (victim, ranks)
    tally.check(result.code == 137 and not result.left and result.seconds < 15, name + ", ends the run",
                result.summary())
    tally.check(expecting.causes(result) == 1 and
                "rank %d on %s died: its keeper was killed; its last operation: " % (victim, os.uname().nodename) in
                result.err, name + ", is named once", result.summary())
    tally.check(len(said["cause"]) == 1 and said["cause"][0]["rank"] == victim and
                said["cause"][0]["exit_code"] == 8 and said["cause"][0]["last_operation"], name + ", is in cause.json",
                json.dumps(said, indent=1))


def signalled():
    """B46: SIGUSR1 to one rank only, its worker or its keeper: nobody goes on without it."""
    for part, name in ((1, "worker"), (0, "keeper")):
        job, _ = start("usr1-" + name, delay="60s")
        os.kill(job.pair(1)[part], signal.SIGUSR1)
        expecting.failure(tally, "B46 SIGUSR1 to the %s of rank 1" % name, job.finish(40), "lost",
                          r"rank 1 on \S+ died: killed by SIGUSR1", within=15)


def interrupted():
    """B45: mpirun's own stop is no death of anybody, and ends all ranks at once."""
    job, where = start("interrupted", delay="60s")
    os.kill(job.process.pid, signal.SIGTERM)
    result = job.finish(40)
    tally.check(result.code and result.seconds < 15 and expecting.causes(result) == 0 and not result.left and not doctor(where)[1]["cause"],
                "a run that mpirun is told to end accuses nobody", result.summary())


def main():
    for case in (stopped, stopped_and_dead, stopped_and_dead_alone, lambda: killed(2, 1), lambda: killed(3, 0), signalled, interrupted):
        case()
    tally.finish()


main()
