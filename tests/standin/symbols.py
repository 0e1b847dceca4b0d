"""The plugin finds every symbol it needs in the stand-in, and the stand-in in front of the real libraries.

usage: symbols.py PLUGIN FOLDER      with FOLDER, the stand-in's, on LD_LIBRARY_PATH
"""
import ctypes
import os
import sys


def main():
    folder = os.path.realpath(sys.argv[2])
    ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)
    with open('/proc/self/maps', encoding='utf-8') as maps:
        mapped = {line.split()[5] for line in maps if len(line.split()) > 5}
    for name in 'libcudart', 'libnccl':
        found = [path for path in mapped if os.path.basename(path).startswith(name + '.so')]
        if not found or any(os.path.dirname(path) != folder for path in found):
            print(f'{name}: {found}, expected one under {folder}')
            return 1
    return 0


sys.exit(main())
