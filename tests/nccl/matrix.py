"""The fault matrix of tests/cli with tensors in device memory, on the stand-in: `ferry run` with a rehearsed fault in
every phase, over nccl, or over mpi through pinned memory.

usage: matrix.py nccl|staged            some phases of rank 1
       matrix.py nccl|staged all        every kind in every phase, of both ranks: minutes
       matrix.py nccl|staged PHASE...   every kind in these phases, of both ranks
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import fault_matrix  # noqa: E402
import test_faults as faults  # noqa: E402

MESH = {"pipeline": 2}
KEYS = {"nccl": {"transport": "nccl"}, "staged": {"transport": "mpi", "memory": "device"}}
SOME = {"nccl": ("building", "step: hidden", "closing"), "staged": ("step: hidden",)}


def rehearse(way, case, delivered, ended):
    result = faults.run(MESH, [case.option], name=way, **KEYS[way])
    good = fault_matrix.judge(faults.tally, case, result, delivered)
    ended[case.rank, case.phase, case.kind] = "%s %.1f s%s" % (result.code, result.seconds, "" if good else " !")


def main():
    way, wanted = sys.argv[1], sys.argv[2:]
    only = SOME[way] if not wanted else None if wanted == ["all"] else wanted
    reference, operations = faults.learn(MESH, name=way, **KEYS[way])
    if not faults.tokens(reference):
        faults.tally.finish()
    cases = fault_matrix.cases(operations[1], 1, faults.TIMEOUT, faults.STARTUP, only=only)
    if wanted:
        cases += fault_matrix.cases(operations[0], 0, faults.TIMEOUT, faults.STARTUP, only=only)
    ended = {}
    faults.together(6, [(rehearse, way, case, faults.tokens(reference), ended) for case in cases])
    print(fault_matrix.table(ended), file=sys.stderr)
    faults.tally.finish()


main()
