"""The whole sweep of nccl_refusals in shares side by side: each mostly waits for its next session to begin.

usage: refusals.py MPIRUN PROGRAM SHARES COUNT
"""
import subprocess
import sys
import tempfile
import time

LIMIT = 100  # seconds for all


def main():
    mpirun, program, shares, count = sys.argv[1:]
    running = []
    for share in range(int(shares)):
        out = tempfile.TemporaryFile('w+')
        command = [mpirun, '--oversubscribe', '-n', '2', program, shares, str(share), count]
        running.append((share, out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)))
    deadline = time.monotonic() + LIMIT
    failed = 0
    for share, out, process in running:
        try:
            code = process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            code = f'killed after {LIMIT} s ({process.wait()})'
        if code:
            failed += 1
            out.seek(0)
            print(f'share {share} of {shares}: {code}\n{out.read()}')
    return 1 if failed else 0


sys.exit(main())
