#!/usr/bin/python3
"""What the built files need and export: `ferry` no library of CUDA, each plugin one symbol."""
import os
import re
import subprocess
import sys

BUILD = os.environ['BUILD']
count = 0
failed = 0


def check(name, ok, told=''):
    global count, failed
    count += 1
    failed += not ok
    print(f'{"ok" if ok else "not ok"} {count} - {name}')
    if not ok:
        print(f'# {told}')


def text_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


libraries = text_of('ldd', os.path.join(BUILD, 'ferry'))
check('ferry needs no library of CUDA', 'libc.so' in libraries and not re.search(r'cuda|nccl|nvidia', libraries),
      libraries)
for plugin in ['ferry-cuda.so', 'ferry-cuda-staged.so', 'ferry-mpi.so']:
    path = os.path.join(BUILD, plugin)
    if not os.path.exists(path):
        continue
    lines = text_of('nm', '--dynamic', '--defined-only', path).splitlines()
    # A sanitizer adds names of its own, which begin with two underscores or belong to no one.
    names = [line.split()[-1] for line in lines if not re.match(r'__|_?(asan|ubsan|tsan)', line.split()[-1])]
    check(f'{plugin} exports ferry_plugin alone', names == ['ferry_plugin'], ' '.join(names))
    needed = re.findall(r'NEEDED.*\[(.*)\]', text_of('readelf', '--dynamic', path))
    if 'staged' in plugin:
        check(f'{plugin} needs no NCCL', not any('nccl' in name for name in needed), ' '.join(needed))
    check(f'{plugin} needs no C++', not any('stdc++' in name for name in needed), ' '.join(needed))
print(f'1..{count}')
sys.exit(1 if failed else 0)
