"""What fails under the nccl transport, by the stand-in's faults: who must be right after it, and within what time.

usage: faults.py MPIRUN NCCL_FAULTS NCCL_JOB [MODE]...
"""
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

# mode, environment, ranks that must end well, seconds.  Others are dead or stopped.
CASES = [
    ('late', {}, [0, 1], 30),
    ('stuck', {'FERRY_STANDIN_FAULT': 'rank=1,kind=init'}, [0, 1], 30),
    ('duplicate', {'FERRY_STANDIN_DEVICES': '1'}, [0, 1], 30),
    ('flip', {'FERRY_STANDIN_FAULT': 'rank=0,op=0,kind=flip:5'}, [0, 1], 30),
    ('short', {'FERRY_STANDIN_FAULT': 'rank=0,op=0,kind=short:100'}, [0, 1], 30),
    ('error', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=error'}, [0, 1], 30),
    ('lost', {'FERRY_STANDIN_FAULT': 'rank=1,op=3,kind=lost'}, [1], 30),
    ('kill', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=kill'}, [0], 30),
    ('stop', {}, [0], 30),
    ('behind', {}, [0, 1], 30),
    ('held', {}, [0, 1], 30),
    ('unbuilt', {'FERRY_STANDIN_FAULT': 'rank=1,op=1,kind=init'}, [0, 1], 30),
    ('reserved', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=delay:4000', 'FERRY_STANDIN_DRAIN': '1'}, [0, 1], 30),
    ('raw', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=error'}, [1], 30),
    ('slow', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=delay:60000'}, [0, 1], 30),
]


TIMEOUT, GRACE = 1, 10  # seconds: of the job's ranks, and beyond it until all must be gone
# Rank 1's operation number 18 sends in the ring, 19 receives, 21 sums: kinds of fault, and what the cause is.
JOB_CASES = [(operation, kind, status)
             for operation, kinds in ((18, 'kill stop flip:48 short'), (19, 'skip'), (21, 'kill stop skip'))
             for kind in kinds.split()
             for status in [{'flip:48': 'mismatch', 'short': 'mismatch', 'skip': '(timeout|mismatch|internal)',
                             'kill': '(timeout|rank lost)'}.get(kind, 'timeout')]]
RANKS = 3
# A group's communicator that NCCL does not build: on no rank, for one does not come; on rank 1 alone.
BUILD_CASES = [
    ('rank=1,op=1,kind=init', r'timeout: the communicator of world/0 is not built on ranks 0, (1|2|1, 2); rank \d has ',
     'wait for each other'),
    ('rank=1,op=1,kind=unready', r'timeout: (the communicator of world/0 is not built on rank 1; )?rank 1 has stood still',
     'wait for each other|rank 0 has|rank 2 has'),
]


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def children(parent):
    """Process ids right below parent, from /proc: no tool for it is on a bare machine."""
    found = []
    for entry in os.listdir('/proc'):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError), open(f'/proc/{entry}/stat', encoding='utf-8') as stat:
            if int(stat.read().rsplit(')', 1)[1].split()[1]) == parent:
                found.append(int(entry))
    return found


def run(command, env, wanted, limit):
    """The lines of the ranks; a rank that is stopped or dead does not count."""
    began = time.monotonic()
    # mpirun's own words go elsewhere: they would come in the midst of a rank's line.
    with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+') as err:
        process = subprocess.Popen(command, env={**os.environ, **env}, stdout=out, stderr=err, start_new_session=True)
        output = ''
        while time.monotonic() - began < limit:
            over = process.poll() is not None
            out.seek(0)
            output = out.read()
            if over or all(re.search(rf'^rank {rank}: .*\n', output, re.MULTILINE) for rank in wanted):
                break
            time.sleep(0.05)
        for rank in children(process.pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself meanwhile
                os.kill(rank, signal.SIGKILL)
        end(process)
        process.wait()
    return output, time.monotonic() - began


def mpirun_of(mpirun, ranks, *words):
    return [mpirun, '--oversubscribe', '--enable-recovery', '-n', str(ranks), *words]


def fault_failed(mpirun, program, mode, env, wanted, limit):
    output, took = run(mpirun_of(mpirun, 3 if mode in ('behind', 'held') else 2, program, mode), env, wanted, limit)
    wrong = [rank for rank in wanted if not re.search(rf'^rank {rank}: ok$', output, re.MULTILINE)]
    print(f'{mode:28} {"FAILED" if wrong else "ok":6} {took:5.1f} s')
    if wrong:
        print(output)
    return bool(wrong)


def job_failed(mpirun, program, operation, kind, status):
    """The cause of a rehearsed fault of rank 1."""
    left = [0, 2] if kind in ('kill', 'stop') else [0, 2] if kind.startswith('delay') else [0, 1, 2]
    fault = f'rank=1,op={operation},kind={kind}'
    return cause_failed(mpirun_of(mpirun, RANKS, program, str(TIMEOUT), fault), {}, fault, left,
                        rf'{status}: .*\brank 1\b', None)


def build_failed(mpirun, program, fault, wanted, unwanted):
    """The cause where NCCL does not build the communicator of a group, by the stand-in's fault."""
    return cause_failed(mpirun_of(mpirun, RANKS, program, str(TIMEOUT)), {'FERRY_STANDIN_FAULT': fault}, fault,
                        list(range(RANKS)), wanted, unwanted)


def cause_failed(command, env, name, left, wanted, unwanted):
    """One cause, as wanted; every rank that is left leaves in time, and the device's memory is its own."""
    output, took = run(command, env, left, TIMEOUT + GRACE)
    causes = re.findall(r'^cause: (.*)$', output, re.MULTILINE)
    good = (len(causes) == 1 and re.match(wanted, causes[0]) and
            not (unwanted and re.search(unwanted, causes[0])) and
            all(re.search(rf'^rank {rank}: left, memory its own$', output, re.MULTILINE) for rank in left))
    print(f'{name:28} {"ok" if good else "FAILED":6} {took:5.1f} s')
    if not good:
        print(output)
    return not good


def main():
    mpirun, faults, job = sys.argv[1:4]
    only = sys.argv[4:]
    failed = 0
    for case in CASES:
        if not only or case[0] in only:
            failed += fault_failed(mpirun, faults, *case)
    for operation, kind, status in JOB_CASES:
        if not only or 'job' in only:
            failed += job_failed(mpirun, job, operation, kind, status)
    for case in BUILD_CASES:
        if not only or 'build' in only:
            failed += build_failed(mpirun, job, *case)
    return 1 if failed else 0


sys.exit(main())
