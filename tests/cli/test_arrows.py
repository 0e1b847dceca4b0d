#!/usr/bin/python3
"""The check of the include arrows finds what it is there for."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running

ARROWS = os.path.join(running.ROOT, 'tests', 'arrows')


def verdict(path, line):
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, os.path.dirname(path)))
        with open(os.path.join(root, path), 'w', encoding='utf-8') as file:
            file.write(f'/* comment */\n{line}\n')
        return running.execute([sys.executable, ARROWS, root], timeout=30)


def main():
    tally = running.Tally()
    for path, line in [
            ('base/a.c', '#include "comm/group.h"'),
            ('comm/a.c', '#include "runtime/plan.h"'),
            ('comm/a.h', '#include <mpi.h>'),
            ('runtime/a.c', '  #  include "backends/cpu/cpu.h"'),
            ('runtime/a.c', '#include <yaml.h>'),
            ('topology/a.c', '#include "checkpoint/checkpoint.h"'),
            ('checkpoint/a.c', '#include "topology/topology.h"'),
            ('launcher/a.c', '#include "backends/mpi/mpi.h"'),
            ('backends/cpu/a.c', '#include "runtime/plan.h"'),
            ('backends/mpi/a.c', '#include <cuda_runtime.h>'),
            ('runtime/a.c', '#include "plan.h"'),
            ('runtime/a.c', '#include "tests/unit/plan/fixture.h"')]:
        result = verdict(path, line)
        tally.check(result.code == 1 and f'{path}:2: ' in result.out, f'{path}: {line}', result.out + result.err)
    for path, line in [('runtime/a.c', '#include "comm/group.h"'), ('backends/mpi/a.c', '#include <mpi.h>'),
                       ('topology/a.c', '#include <yaml.h>'), ('base/a.c', '#include <stdio.h>')]:
        result = verdict(path, line)
        tally.check(result.code == 0, f'{path} may: {line}', result.out + result.err)
    tally.finish()


main()
