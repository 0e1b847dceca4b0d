"""What fails under the nccl transport, by the stand-in's faults: who must be right after it, and within what time.

usage: faults.py MPIRUN NCCL_FAULTS
"""
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
    ('kill', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=kill'}, [0], 30),
    ('stop', {}, [0], 30),
    ('slow', {'FERRY_STANDIN_FAULT': 'rank=1,op=0,kind=delay:60000'}, [0, 1], 30),
]


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def children(parent):
    found = subprocess.run(['pgrep', '-P', str(parent)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def run(mpirun, program, mode, env, wanted, limit):
    """The lines of the ranks; a rank that is stopped or dead does not count."""
    began = time.monotonic()
    with tempfile.TemporaryFile('w+') as out:
        process = subprocess.Popen([mpirun, '--oversubscribe', '--enable-recovery', '-n', '2', program, mode],
                                   env={**os.environ, **env}, stdout=out, stderr=out, start_new_session=True)
        output = ''
        while time.monotonic() - began < limit:
            over = process.poll() is not None
            out.seek(0)
            output = out.read()
            if over or all(re.search(rf'^rank {rank}: .*\n', output, re.MULTILINE) for rank in wanted):
                break
            time.sleep(0.05)
        for rank in children(process.pid):
            os.kill(rank, signal.SIGKILL)
        end(process)
        process.wait()
    return output, time.monotonic() - began


def main():
    mpirun, program = sys.argv[1:3]
    only = sys.argv[3:]
    failed = 0
    for mode, env, wanted, limit in CASES:
        if only and mode not in only:
            continue
        output, took = run(mpirun, program, mode, env, wanted, limit)
        wrong = [rank for rank in wanted if not re.search(rf'^rank {rank}: ok$', output, re.MULTILINE)]
        print(f'{mode:10} {"ok" if not wrong else "FAILED"} {took:5.1f} s')
        if wrong:
            failed += 1
            print(output)
    return 1 if failed else 0


sys.exit(main())
