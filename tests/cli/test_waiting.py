"""Eight ranks on one core: those that wait leave it to the one that works.

One rank is delayed; meanwhile the other seven can only wait.  The CPU time of all their processes, keepers and control
threads included, over the quietest seconds of the run must stay below a tenth of these seconds.
"""

import json
import os
import shutil
import sys
import time

import expecting
from expecting import running

MODEL = os.path.join(running.TINY, "llama-10-layers")
RANKS, DELAY, WINDOW, SHARE = 8, 6, 4.0, 0.10
tally = running.Tally()


def watch(job, idle):
    """Samples (time, CPU seconds of all ranks but idle) until the run has ended."""
    samples = []
    pids = []
    while job.process.poll() is None:
        if len(pids) < 2 * (RANKS - 1):
            pids = [pid for rank, pair in job.ranks().items() if rank != idle for pid in pair]
        else:
            samples.append((time.monotonic(), job.cpu_seconds(pids)))
        time.sleep(0.1)
    return samples


def quietest(samples):
    """The smallest CPU share over any WINDOW seconds; samples of the end, when processes are gone, are left out."""
    best = None
    for i, (begin, before) in enumerate(samples):
        for end, after in samples[i:]:
            if end - begin >= WINDOW:
                if after >= before:
                    share = (after - before) / (end - begin)
                    best = share if best is None else min(best, share)
                break
    return best


def golden():
    with open(os.path.join(running.ROOT, "tests", "parity", "golden", "llama-10-layers.json"), encoding="utf-8") as file:
        cases = json.load(file)
    return [case["text"] for case in cases["prompts"]], [case["tokens"] for case in cases["prompts"]]


def waiting(name, mesh, late, operation):
    prompts, tokens = golden()
    folder = running.scratch("waiting")
    path = running.write_topology(folder, "waiting", mesh, {"model": MODEL, "prompts": prompts, "max_new_tokens": 16})
    command = running.mpirun_command(RANKS, ["run", path, "--json", "--fault",
                                             "rank=%d,op=%d,kind=delay:%ds" % (late, operation, DELAY)])
    job = running.Run(["taskset", "-c", "0"] + command)
    samples = watch(job, late)
    result = job.finish(120)
    if not expecting.success(tally, name, result):
        return
    tally.check([o["tokens"] for o in result.objects()] == tokens, name + ": the right tokens", result.summary())
    with open(running.FERRY, "rb") as program:
        most = 3 * SHARE if b"__asan_init" in program.read() else SHARE  # sanitized code takes its time
    share = quietest(samples)
    print("# %s: waiting ranks used %s of the core" % (name, "nothing measured" if share is None else
                                                       "%.1f %%" % (100 * share)), file=sys.stderr)
    tally.check(result.seconds > DELAY and share is not None, name + ": the delay was measured", result.summary())
    tally.check(share is not None and share < most, name + ": those that wait use less than 10 %% of the core (%s)" % share,
                result.summary())


def main():
    if not shutil.which("taskset"):
        tally.skip("eight ranks on one core", "no taskset")
        tally.finish()
    waiting("a pipeline of 8, one stage late in a step", {"pipeline": 8}, 3, 14)
    waiting("a pipeline of 8, one rank late in the consensus", {"pipeline": 8}, 5, 0)
    waiting("4 stages by 2 tensor ranks, one rank late", {"pipeline": 4, "tensor": 2}, 6, 30)
    tally.finish()


main()
