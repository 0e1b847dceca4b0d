"""What fails under the nccl transport, by the stand-in's faults: who must be right after it, and within what time.

usage: faults.py MPIRUN NCCL_FAULTS NCCL_JOB NCCL_SESSION [MODE]...
"""
import concurrent.futures
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running  # noqa: E402

AT_ONCE = 3  # most of the time a job waits
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
    ('reserved', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=delay:2500', 'FERRY_STANDIN_DRAIN': '1'}, [0, 1], 30),
    ('carrier', {}, [0], 30),
    ('limited', {'FERRY_STANDIN_TAIL': '3000000'}, [0, 1], 30),
    ('raw', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=error', 'FERRY_STANDIN_LAG': '100000'}, [1], 30),
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
    ('rank=1,op=1,kind=unready',
     r'timeout: (the communicator of world/0 is not built on rank 1; )?rank 1 has stood still',
     'wait for each other|rank 0 has|rank 2 has'),
]
# Four ranks divide their communicator into rows, then into columns: on one rank NCCL cannot.
SQUARE = 4
DIVIDE_CASES = [('rank=1,op=0,kind=split', 'group 4, one line'), ('rank=2,op=1,kind=split', 'group 6, one line')]


def run(command, env, wanted, limit):
    """The lines of the ranks, and the seconds since the last one started; a rank that is stopped or dead does not
    count."""
    job = running.Run(command, extra_env=env)
    job.until(lambda: all(re.search(rf'^rank {rank}: .*\n', job.text(), re.MULTILINE) for rank in wanted), limit)
    output, took = job.text(), time.monotonic() - job.begin()
    job.end()
    job.finish()
    return output, took


def mpirun_of(mpirun, ranks, *words):
    return [mpirun, '--oversubscribe', '--enable-recovery', '-n', str(ranks), *running.RANK, *words]


def fault_failed(mpirun, program, mode, env, wanted, limit):
    output, took = run(mpirun_of(mpirun, 3 if mode in ('behind', 'held') else 2, program, mode), env, wanted, limit)
    wrong = [rank for rank in wanted if not re.search(rf'^rank {rank}: ok$', output, re.MULTILINE)]
    return bool(wrong), f'{mode:28} {"FAILED" if wrong else "ok":6} {took:5.1f} s\n' + (output if wrong else '')


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


def divide_failed(mpirun, program, fault, what):
    """Every rank says so, and leaves; one that heard of it while it still met the others says that, too."""
    job = running.Run(mpirun_of(mpirun, SQUARE, program, '1'), extra_env={'FERRY_STANDIN_FAULT': fault})
    result = job.finish(TIMEOUT + GRACE)
    said = re.findall(rf'^(?:building the groups: )?rank {fault[5]}: {what} of 2 ranks among all: ncclCommSplit failed',
                      result.err, re.MULTILINE)
    good = result.code != running.OUTLIVED and len(said) == SQUARE and 'Running suite' not in result.out
    return not good, f'{fault:28} {"ok" if good else "FAILED":6} {result.seconds:5.1f} s\n' + \
        ('' if good else result.summary())


def cause_failed(command, env, name, left, wanted, unwanted):
    """One cause, as wanted; every rank that is left leaves in time, and the device's memory is its own."""
    output, took = run(command, env, left, TIMEOUT + GRACE)
    causes = re.findall(r'^cause: (.*)$', output, re.MULTILINE)
    good = (took <= TIMEOUT + GRACE and len(causes) == 1 and re.match(wanted, causes[0]) and
            not (unwanted and re.search(unwanted, causes[0])) and
            all(re.search(rf'^rank {rank}: left, memory its own$', output, re.MULTILINE) for rank in left))
    return not good, f'{name:28} {"ok" if good else "FAILED":6} {took:5.1f} s\n' + ('' if good else output)


def main():
    mpirun, faults, job, session = sys.argv[1:5]
    only = sys.argv[5:]
    jobs = [(fault_failed, mpirun, faults, *case) for case in CASES if not only or case[0] in only]
    jobs += [(job_failed, mpirun, job, *case) for case in JOB_CASES if not only or 'job' in only]
    jobs += [(build_failed, mpirun, job, *case) for case in BUILD_CASES if not only or 'build' in only]
    jobs += [(divide_failed, mpirun, session, *case) for case in DIVIDE_CASES if not only or 'divide' in only]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for bad, words in pool.map(lambda one: one[0](*one[1:]), jobs):
            print(words, end='', flush=True)
            failed += bad
    return 1 if failed else 0


sys.exit(main())
