"""Whose a run's folder is: two jobs under one FERRY_RUN_ID, one after the other and at the same time."""

import json
import os
import sys

import expecting
from expecting import running

MODEL = os.path.join(running.TINY, "llama-10-layers")
tally = running.Tally()
folder = running.scratch("folders")
where = os.path.join(folder, "runs")


def command(*arguments):
    path = running.write_topology(
        folder, "chat", {"pipeline": 2}, {"model": MODEL, "prompts": ["t"], "max_new_tokens": 4, "ignore_eos": True},
        run_dir=where, communication={"timeout": "20s"})
    return running.mpirun_command(2, ["run", path, "--json"] + list(arguments))


def at_the_same_time():
    mine = {"FERRY_RUN_ID": "mine"}
    first = running.Run(command("--fault", "rank=1,op=16,kind=delay:5s"), extra_env=mine)
    recorder = os.path.join(where, "chat-mine", "rank-000001.recorder")
    first.until(lambda: b"step " in running._read(recorder))
    worker = first.pair(0)[1]
    second = running.execute(command(), extra_env=mine, timeout=30)
    expecting.failure(tally, "a second job under the id of one that runs", second, "environment",
                      r"run_dir: %s/chat-mine is the folder of another job that runs, process %d on %s, since " %
                      (where, worker, os.uname().nodename), "give this one another FERRY_RUN_ID")
    third = running.execute(command(), extra_env={"FERRY_RUN_ID": "other"}, timeout=30)
    expecting.success(tally, "a third under its own", third)
    result = first.finish(60)
    expecting.success(tally, "the first goes on", result)
    said = running.execute([running.FERRY, "doctor", os.path.join(where, "chat-mine"), "--json"], timeout=30)
    lines = [json.loads(line) for line in said.out.splitlines()]
    tally.check(lines[0]["verdict"] == "ended well" and lines[0]["size"] == 2 and
                not any(line["kind"] == "cause" for line in lines), "its folder tells of it alone", said.summary())
    tally.check(sorted(os.listdir(os.path.join(where, "chat-mine"))) ==
                ["owner", "rank-000000.recorder", "rank-000001.recorder"], "and holds nothing else",
                str(os.listdir(os.path.join(where, "chat-mine"))))


def at_the_same_moment():
    slow = command("--fault", "rank=1,op=16,kind=delay:5s")  # each outlasts the other's start
    both = [running.Run(slow, extra_env={"FERRY_RUN_ID": "both"}) for _ in range(2)]
    first, second = sorted((run.finish(60) for run in both), key=lambda result: result.code)
    expecting.success(tally, "one of two jobs that start under one id at the same moment runs", first)
    expecting.failure(tally, "and one is refused", second, "environment",
                      r"run_dir: %s/chat-both is the folder of another job that runs, process \d+ on %s, since " %
                      (where, os.uname().nodename), "give this one another FERRY_RUN_ID")
    said = running.execute([running.FERRY, "doctor", os.path.join(where, "chat-both"), "--json"], timeout=30)
    tally.check(said.code == 0 and json.loads(said.out.splitlines()[0])["verdict"] == "ended well",
                "the folder tells of the one that runs", said.summary())


def one_after_the_other():
    mine = {"FERRY_RUN_ID": "again"}
    failed = running.execute(command("--fault", "rank=1,op=12,kind=kill"), extra_env=mine, timeout=30)
    expecting.failure(tally, "a job that dies", failed, "lost", "rank 1 on .* died")
    expecting.success(tally, "the next under its id begins anew",
                      running.execute(command(), extra_env=mine, timeout=30))
    tally.check(not os.path.exists(os.path.join(where, "chat-again", "cause.json")), "without its cause")


def no_name():
    for name, words in (("x" * 64, "FERRY_RUN_ID has 64 bytes, at most 63 are allowed"),
                        ("a\nb", "FERRY_RUN_ID holds the control character 0x0a at byte 1")):
        expecting.failure(tally, "FERRY_RUN_ID %r" % name[:4], running.execute(
            command(), extra_env={"FERRY_RUN_ID": name}, timeout=30), "environment", words)
    before = set(os.listdir(where))
    expecting.success(tally, "one of 63 bytes", running.execute(command(), extra_env={"FERRY_RUN_ID": "y" * 63},
                                                                timeout=30))
    tally.check(set(os.listdir(where)) - before == {"chat-" + "y" * 63}, "names the folder", str(os.listdir(where)))


def main():
    for case in (at_the_same_time, at_the_same_moment, one_after_the_other, no_name):
        case()
    tally.finish()


main()
