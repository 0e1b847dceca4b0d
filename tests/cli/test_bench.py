#!/usr/bin/env python3
"""`ferry bench`: what its JSON lines say, against the test's own arithmetic; its plot; what it refuses.

No times are judged: only that they are there and fit together.
"""

import json
import math
import os
import re
import signal
import sys
import tempfile
import xml.dom.minidom

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running
from expecting import CODE, failure, success

OPERATIONS = ["all_reduce_sum", "all_gather_even", "all_gather_uneven", "variable_all_to_all", "broadcast", "barrier",
              "failure_agreement"]
AXIS = ["all_gather_even", "all_gather_uneven", "variable_all_to_all"]
FIELDS = {"operation": str, "target": str, "kind": str, "transport": str, "ranks": int, "bytes": int, "dtype": str,
          "axis": (int, type(None)), "run_bytes": (int, type(None)), "checks": str, "algorithm": str,
          "median_us": float, "bus_gb_per_s": float, "mpi_call": (str, type(None)), "mpi_median_us": (float, type(None)),
          "ratio": (float, type(None)), "repeats": int, "iterations": int}


def bus(line):
    """GB/s by the definition of nccl-tests: bytes over time, times what the operation must move over a link."""
    n = line["ranks"]
    factor = {"all_reduce_sum": 2 * (n - 1) / n, "broadcast": 1, "send_receive": 1}.get(line["operation"], (n - 1) / n)
    return factor * line["bytes"] / (line["median_us"] * 1e-6) / 1e9


def close(got, expected):
    return math.isclose(got, expected, rel_tol=1e-4, abs_tol=1e-9)


def faults_of(line):
    """What is wrong with one line by itself."""
    wrong = ["%s is %r" % (name, line.get(name)) for name, kinds in FIELDS.items()
             if not isinstance(line.get(name), kinds) and not (kinds == float and isinstance(line.get(name), int)) and
             not (isinstance(kinds, tuple) and float in kinds and isinstance(line.get(name), int))]
    wrong += ["unknown field " + name for name in line if name not in FIELDS]
    if wrong:
        return wrong
    if line["median_us"] <= 0 or line["iterations"] < 1:
        wrong.append("time %r, iterations %r" % (line["median_us"], line["iterations"]))
    if not close(line["bus_gb_per_s"], bus(line)):
        wrong.append("bus %r, expected %r" % (line["bus_gb_per_s"], bus(line)))
    if line["mpi_median_us"] is not None and not close(line["ratio"], line["mpi_median_us"] / line["median_us"]):
        wrong.append("ratio %r, expected %r" % (line["ratio"], line["mpi_median_us"] / line["median_us"]))
    if (line["mpi_median_us"] is None) != (line["mpi_call"] is None) or (line["ratio"] is None) != (
            line["mpi_call"] is None):
        wrong.append("half of MPI's fields are there")
    if line["operation"] not in AXIS and line["axis"] is not None:
        wrong.append("an axis without one")
    if (line["axis"] == 1) != (line["run_bytes"] is not None):
        wrong.append("runs on axis %r of %r bytes" % (line["axis"], line["run_bytes"]))
    return wrong


def check_lines(tally, name, result, ranks, sizes, repeats=5):
    """Schema and arithmetic of every line; each size once for each operation and kind of checks."""
    if not success(tally, name + " ends well", result, within=240.0):  # on a busy machine, sanitized
        return []
    lines = [json.loads(line) for line in result.out.splitlines()]
    wrong = ["%s in %s" % (fault, line) for line in lines for fault in faults_of(line)]
    tally.check(lines and not wrong, name + ": every line fits together", "\n".join(wrong[:20]))
    tally.check(all(line["repeats"] == repeats and line["transport"] == "mpi" for line in lines), name + ": repeats", "")
    points = [(l["target"], l["operation"], l["axis"], l["run_bytes"], l["bytes"], l["checks"]) for l in lines]
    tally.check(len(set(points)) == len(points), name + ": no point twice", str(points))
    if ranks == 2:
        got = {l["bytes"] for l in lines if l["operation"] == "all_reduce_sum"}
        tally.check(got == set(sizes), name + ": sizes are those asked for", "%s, expected %s" % (got, sizes))
    return lines


def test_groups(tally, folder):
    path = running.write_topology(folder, "bench-pair", world=2, groups=[{"name": "swapped", "members": [1, 0]}],
                                  routes=[{"name": "there", "from": 1, "to": 0,
                                           "bundle": [{"role": "x", "dtype": "f32", "shape": [4]}]}])
    svg = os.path.join(folder, "pair.svg")
    result = running.mpirun(2, ["bench", path, "--json", "--sizes", "64..16K", "--svg", svg], timeout=240)
    lines = check_lines(tally, "two ranks", result, 2, [64, 256, 1024, 4096, 16384])
    by = {}
    for line in lines:
        by.setdefault(line["target"], set()).add((line["operation"], line["checks"]))
    expected = {(operation, checks) for operation in OPERATIONS for checks in ("light", "full")}
    tally.check(set(by) == {"world/0", "swapped", "there"} and by.get("swapped") == expected,
                "all targets, every operation with light and with full checks", str(by))
    tally.check(by.get("there") == {("send_receive", "always")}, "a route's headers are always checked", str(by))
    runs = {line["run_bytes"] for line in lines if line["operation"] in AXIS}
    tally.check(runs == {None, 64, 1024}, "whole parts, and runs that fit twice", str(runs))
    tally.check(lines and all(line["mpi_call"] for line in lines), "MPI can do all of this in f32", "")
    try:
        with open(svg, encoding="utf-8") as file:
            document = xml.dom.minidom.parse(file)
        panels = [g for g in document.getElementsByTagName("g")]
        names = [g.getElementsByTagName("text")[0].firstChild.data for g in panels]
        points = {(l["target"], l["operation"], l["run_bytes"]) for l in lines}
        tally.check(len(panels) == len(points) and "swapped: broadcast" in names,
                    "the plot has a panel for each series", "%s, %d series" % (names, len(points)))
        dots = sum(1 for c in document.getElementsByTagName("circle"))
        mpi = len({(l["target"], l["operation"], l["run_bytes"], l["bytes"]) for l in lines})
        tally.check(dots == len(lines) + mpi, "the plot has a dot for each number", "%d, lines %d" % (dots, len(lines)))
    except Exception as problem:  # whatever the parser finds
        tally.check(False, "the plot is XML", repr(problem))


def test_small_and_odd(tally, folder):
    """One rank, three ranks; a dtype that MPI cannot add; only what was selected."""
    one = running.write_topology(folder, "bench-one", world=1)
    result = running.mpirun(1, ["bench", one, "--json", "--sizes", "4K", "--repeats", "7"], timeout=240)
    lines = check_lines(tally, "one rank", result, 1, [4096], repeats=7)
    tally.check(all(l["bus_gb_per_s"] == 0 for l in lines if l["operation"] in AXIS + ["all_reduce_sum"]),
                "alone nothing crosses a link", "")
    three = running.write_topology(folder, "bench-three", world=3, groups=[
        {"name": "halves", "members": [2, 0], "operations": ["all_reduce_sum", "barrier"], "dtypes": ["bf16"]}])
    result = running.mpirun(3, ["bench", three, "--json", "--sizes", "1000..4000"], timeout=240)
    lines = check_lines(tally, "three ranks", result, 3, [])
    halves = [line for line in lines if line["target"] == "halves"]
    tally.check({line["operation"] for line in halves} == {"all_reduce_sum", "barrier"}, "only what is selected",
                str(halves))
    tally.check(halves and all((line["mpi_call"] is None) == (line["operation"] == "all_reduce_sum") and
                               line["dtype"] == "bf16" for line in halves), "MPI cannot add bf16: null, no ratio",
                str(halves))
    tally.check(all(l["bytes"] % 12 == 0 for l in lines if l["operation"] == "all_gather_even" and l["ranks"] == 3),
                "sizes are rounded down to even parts", "")


def test_table(tally, folder):
    path = running.write_topology(folder, "bench-table", world=2)
    result = running.mpirun(2, ["bench", path, "--sizes", "256..1K", "--operation", "broadcast", "--target", "world/0"],
                            timeout=240)
    success(tally, "a table", result, within=240.0)
    rows = [line.split() for line in result.out.splitlines() if line.startswith("broadcast")]
    tally.check([row[2] for row in rows] == ["256", "1024"] and all(row[-1] == "MPI_Bcast" for row in rows),
                "a row for each size with MPI's call", result.out)


def test_stopped(tally, folder):
    """Who waits says in which target."""
    path = running.write_topology(folder, "bench-stopped", world=2, communication={"timeout": "1s"}, groups=[
        {"name": "sums", "members": [0, 1], "operations": ["all_reduce_sum"]}])
    for _ in range(6):
        job = running.Run(running.mpirun_command(2, ["bench", path, "--target", "sums", "--repeats", "101", "--json"]))
        job.until(lambda: "\n" in job.text())
        os.kill(job.pair(1)[1], signal.SIGSTOP)
        result = job.finish(60)
        # Half of the time the others are in a call of MPI's own, which knows no timeout: then its keeper ends it.
        if "rank 1 on " not in result.err:
            break
    failure(tally, "a stopped rank", result, "timeout", r"rank 1 has been silent.*\(bench of sums\)", within=30.0)


def test_refusals(tally, folder):
    path = running.write_topology(folder, "bench-refused", world=2, groups=[
        {"name": "sums", "members": [0, 1], "operations": ["all_reduce_sum"]}])
    for name, arguments, words in [
            ("no topology", [], "which topology"),
            ("sizes that are none", [path, "--sizes", "64..x"], "--sizes 64..x: expected"),
            ("sizes that shrink", [path, "--sizes", "4K..64"], "no smaller"),
            ("sizes above the limit", [path, "--sizes", "64..99999999999G"], "1G"),
            ("too few repeats", [path, "--repeats", "4"], "from 5 to 101"),
            ("an unknown operation", [path, "--operation", "all_reduce"], "did you mean all_reduce_sum"),
            ("two topologies", [path, path], "one topology at a time")]:
        result = running.execute([running.FERRY, "bench"] + arguments, timeout=30)
        tally.check(result.code == CODE["usage"] and words in result.err and not result.out, "refuses " + name,
                    result.summary())
    for name, arguments, words in [
            ("an unknown target", ["--target", "sum"], "no group or route of this name; did you mean sums"),
            ("an operation that is not selected", ["--target", "sums", "--operation", "broadcast"],
             "broadcast: sums does not select it"),
            ("an operation that nobody has", ["--operation", "send_receive"], "this topology does not select it")]:
        result = running.mpirun(2, ["bench", path, "--sizes", "64"] + arguments)
        failure(tally, "refuses " + name, result, "usage", re.escape(words), within=20.0,
                absent=[r"usage: rank", r"ferry: rank"])
    result = running.mpirun(2, ["bench", path, "--sizes", "64", "--svg", os.path.join(folder, "no", "such.svg")])
    failure(tally, "a plot that cannot be written", result, "storage", "no/such.svg: No such file", within=20.0)
    tally.check("all_reduce_sum" not in result.out, "nothing is measured for such a plot", result.summary())
    result = running.mpirun(3, ["bench", path, "--sizes", "64"])
    failure(tally, "more ranks than the topology has", result, "topology", "mpirun -n 2 %s bench" % running.FERRY, within=20.0)


def main():
    tally = running.Tally()
    with tempfile.TemporaryDirectory() as folder:
        test_groups(tally, folder)
        test_small_and_odd(tally, folder)
        test_table(tally, folder)
        test_stopped(tally, folder)
        test_refusals(tally, folder)
    tally.finish()


main()
