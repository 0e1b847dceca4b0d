"""A boundary of 8 MiB behind compute of equal length, over a link that is slower than memory: little of it shows.

usage: test_overlap.py BENCH_OVERLAP PLUGIN_DIR

Each side computes in turn while the other only waits; both computing is printed, without a bound.  What disturbs a
measurement only ever adds to it, so one quiet attempt is enough; without overlap all of it shows in each.
"""

import re
import sys

import hosts
from hosts import running

RATE = ["rate", "250mbit", "burst", "256kb", "latency", "100ms"]
BOUND = 15.0  # percent of the transfer's time alone
BYTES = 8 << 20
ATTEMPTS = 8
tally = running.Tally()


def rows(text):
    """{who computes: (ms alone, ms of compute, ms together, percent exposed)}"""
    found = re.findall(r"^(sender|receiver|both) +([\d.]+) +([\d.]+) +([\d.]+) +(-?[\d.]+)%", text, re.MULTILINE)
    return {name: tuple(float(value) for value in values) for name, *values in found}


def measure(cluster, compute):
    return cluster.run(2, ["--compute", compute, "--repeats", "3", "--bytes", str(BYTES), "--bound", str(BOUND)],
                       program=[sys.argv[1]], variables=["FERRY_PLUGIN_DIR=" + sys.argv[2]], timeout=120)


def little_shows(cluster, compute):
    for attempt in range(ATTEMPTS):
        result = measure(cluster, compute)
        row = rows(result.out).get(compute)
        print(result.out, flush=True)
        if result.code == 0 or row is None:
            break
    if tally.check(row is not None, compute + ": a row was printed", result.summary()):
        alone, work, together, exposed = row
        # 8 MiB at this rate; the link is what the transfer takes its time from.
        tally.check(alone > BYTES * 8 / 250e3 * 0.9, compute + ": the link limits the transfer", result.out)
        tally.check(abs(exposed - (together - work) / alone * 100) < 0.2, compute + ": the share is what it says",
                    result.out)
        tally.check(result.code == 0 and exposed < BOUND, compute + ": less than %g %% shows" % BOUND, result.out)
    return result


def main():
    hosts.enter()
    with hosts.Cluster(2) as cluster:
        for host in cluster.hosts:
            host.do("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *RATE)
        for compute in "sender", "receiver":
            little_shows(cluster, compute)
        result = measure(cluster, "both")
        print(result.out, flush=True)
        tally.check(result.code == 0 and "both" in rows(result.out), "both: printed without a bound", result.summary())
    tally.finish()


main()
