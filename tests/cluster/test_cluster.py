"""Several hosts: the same answers as on one, bad cables, cut cables, dead hosts, signals, interfaces, the fault
matrix.

usage: test_cluster.py [runs|cables|ends|interface|matrix]      without: all
"""

import concurrent.futures
import os
import re
import signal
import sys
import threading
import time

import hosts

sys.path.insert(0, os.path.join(hosts.running.ROOT, "tests", "cli"))
import expecting
import fault_matrix
from hosts import running

TIMEOUT, STARTUP = 3, 8  # seconds, of the topologies here
GRACE = 10               # what the product promises beyond the timeout
PROMPTS = ["In the beginning", "And it came to pass"]
MESHES = [{"pipeline": 2, "tensor": 2}, {"pipeline": 4}, {"tensor": 4}, {"data": 2, "pipeline": 2}]
tally = running.Tally()


def topology(name, mesh, model=running.KJV, prompts=None, new=24, microbatch="auto", run_dir=None, text="",
             **communication):
    sections = {"run_dir": run_dir} if run_dir else {}
    sections["compute"] = {"pieces": 4}  # equal bits on every mesh
    return running.write_topology(
        hosts.SHARED, name, mesh,
        {"model": model, "prompts": prompts or PROMPTS, "max_new_tokens": new, "ignore_eos": True,
         "microbatch": microbatch},
        communication={"timeout": "%ds" % TIMEOUT, "startup_timeout": "%ds" % STARTUP, **communication}, **sections)


def answers(result):
    """What must not depend on where the ranks are: tokens, text, and the bits of the logits."""
    if result.code != 0:
        return None
    return [(o["prompt"], o["tokens"], o["text"], o.get("logits_digest")) for o in result.objects()]


def same(name, result, reference, within=60.0):
    if expecting.success(tally, name, result, within):
        tally.check(answers(result) == answers(reference), name + ": the same text and logits",
                    result.summary() + reference.summary())


def label(mesh):
    return "-".join("%s%d" % pair for pair in sorted(mesh.items()))


# ---- good runs -----------------------------------------------------------------------------------------


def test_runs():
    paths = {label(mesh): topology(label(mesh), mesh) for mesh in MESHES}
    options = ["--json", "--logits-digest"]
    with hosts.Cluster(1) as one:
        reference = one.run(1, ["run", topology("alone", {"pipeline": 1}), *options])
        expecting.success(tally, "one rank on one host", reference)
    tally.check(answers(reference) and len({digest for _, _, _, digest in answers(reference)}) == len(PROMPTS),
                "each prompt has its own digest", reference.summary())
    for count in (2, 4):
        with hosts.Cluster(count) as cluster:
            for mesh, path in paths.items():
                result = cluster.run(4, ["run", path, *options])
                same("%s on %d hosts" % (mesh, count), result, reference)
            tally.check(seen_hosts(cluster, paths["pipeline4"]) == cluster.names,
                        "the ranks really run on %d hosts" % count)


def seen_hosts(cluster, path):
    """The hosts on which ranks of a run write their recorders."""
    where = os.path.join(hosts.SHARED, "runs-%d" % len(cluster.hosts))
    cluster.run(4, ["run", path, "--set", "run_dir=" + where])
    found = set()
    for folder, _, names in os.walk(where):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found.update(re.findall(rb"c?\d*node\d", file.read(1024)))
    return sorted(name.decode() for name in found)


# ---- bad cables ----------------------------------------------------------------------------------------


def test_cables():
    path = topology("bad-cable", {"pipeline": 2}, prompts=PROMPTS[:1], new=4, timeout="30s", startup_timeout="60s")
    options = ["run", path, "--json", "--logits-digest"]
    with hosts.Cluster(2) as cluster:
        reference = cluster.run(2, options)
        expecting.success(tally, "a good cable", reference)
        cluster.hosts[1].do("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", "1mbit", "burst", "8kb",
                            "latency", "100ms")
        limited = cluster.run(2, options)
        same("a cable of 1 Mbit/s", limited, reference)
    with hosts.Cluster(2, wire={1: {"delay": 0.05, "loss": 0.2}}) as cluster:
        result = cluster.run(2, options, timeout=90)
        same("50 ms of delay, 20 % of the frames lost", result, reference, within=90.0)
        wire = cluster.wires[0]
        tally.check(wire.sent > 50 and 0.08 < wire.lost / wire.sent < 0.35, "about a fifth of the frames was lost",
                    "%d of %d" % (wire.lost, wire.sent))


# ---- ends ----------------------------------------------------------------------------------------------


def long_job(cluster, name, launch=None, arguments=(), **keys):
    """A generation of many seconds over 2 hosts x 2 ranks that has begun: its text streams."""
    keys = {"prompts": PROMPTS * 20, "new": 400, "microbatch": 1, **keys}
    path = topology(name, {"pipeline": 2, "tensor": 2}, **keys)
    job = cluster.start(4, ["run", path, *arguments], launch=launch)
    tally.check(job.until(lambda: len(job.text()) > 40), name + ": the generation has begun", job.text(job.err))
    return job


def end_after(job, what, grace=4.0):
    """Do what; the result's seconds count from here."""
    before = time.monotonic()
    what()
    result = job.finish(60, grace)
    result.seconds = time.monotonic() - before - result.still
    return result


def failed(name, result, codes, *needles, within=TIMEOUT + GRACE, printed=1):
    expecting.failure(tally, name, result, codes, *needles, within=within, printed=printed)


LAUNCH = ["--timeout", str(TIMEOUT), "--startup", str(STARTUP), "--grace", "5"]
PATIENT = ["--timeout", "30", "--startup", str(STARTUP), "--grace", "5"]  # no help from the daemons' keepalive


def test_ends():
    jobs = [cut_cable, cut_cable_without_keepalive, cut_before_the_start, host_dies, ranks_of_a_host_die,
            keeper_of_another_host_dies, mpirun_dies, rank_stops, rank_stops_for_a_while, signals_pass,
            launch_passes_everything_on]
    free = [hosts.Cluster(2) for _ in range(2)]
    spread(jobs, free)


def spread(jobs, free):
    """Run jobs(cluster), one at a time on each of the clusters; a cluster that lost a host is replaced by its job."""
    lock = threading.Lock()

    def work():
        with lock:
            cluster = free.pop()
        while True:
            with lock:
                if not jobs:
                    break
                job = jobs.pop(0)
            cluster = job(cluster) or cluster
        cluster.close()

    with concurrent.futures.ThreadPoolExecutor(len(free)) as pool:
        for done in [pool.submit(work) for _ in range(len(free))]:
            done.result()


def cut_cable(cluster):
    job = long_job(cluster, "cut-cable", launch=LAUNCH)
    result = end_after(job, lambda: cluster.hosts[1].link("down"))
    failed("a cable is cut", result, ["timeout", "lost"], r"rank [23]\b.*silent|host \S*node2 cannot be reached",
           printed=None)
    cluster.hosts[1].link("up")


def cut_cable_without_keepalive(cluster):
    job = long_job(cluster, "cut-cable-patient", launch=PATIENT)
    result = end_after(job, lambda: cluster.hosts[1].link("down"))
    failed("a cable is cut, and the daemons do not notice", result, "timeout", r"rank [23] .*has been silent for 3\.\d s",
           r"launch: mpirun had not ended 5 s after the failure")
    cluster.hosts[1].link("up")


def cut_before_the_start(cluster):
    cluster.hosts[1].link("down")
    path = topology("cut-before", {"pipeline": 2, "tensor": 2})
    result = cluster.run(4, ["run", path], launch=LAUNCH)
    failed("a host that cannot be reached at the start", result, "timeout",
           r"launch: error: timeout: mpirun has started no rank within 8 s", within=STARTUP + GRACE, printed=None)
    cluster.hosts[1].link("up")


def host_dies(cluster):
    """Its cable goes with it: nobody says goodbye."""
    job = long_job(cluster, "dead-host", launch=PATIENT)

    def die():
        cluster.hosts[1].link("down")
        cluster.hosts[1].kill()

    result = end_after(job, die)
    failed("a host dies", result, ["timeout", "lost"], r"rank [23] .*has been silent|host \S*node2 cannot be reached",
           printed=None)
    cluster.close()
    return hosts.Cluster(2)


def ranks_of_a_host_die(cluster):
    job = long_job(cluster, "dead-ranks", launch=LAUNCH)
    result = end_after(job, cluster.hosts[1].kill_jobs)
    failed("all processes of a host are killed", result, "lost", r"node2", printed=None)


def keeper_of_another_host_dies(cluster):
    """It takes its rank along; who is left says so."""
    job = long_job(cluster, "dead-keeper", launch=LAUNCH)
    pid = job.ranks()[3][0]
    result = end_after(job, lambda: os.kill(pid, signal.SIGKILL))
    failed("a keeper of another host is killed", result, "lost", r"rank 3 on \S*node2 died: its keeper was killed",
           printed=None)


def mpirun_dies(cluster):
    job = long_job(cluster, "dead-mpirun")
    result = end_after(job, lambda: os.kill(job.named("mpirun")[0], signal.SIGKILL))
    tally.check(not result.left and result.seconds < GRACE, "mpirun is killed: no process is left on any host",
                result.summary())


def rank_stops(cluster):  # B174
    job = long_job(cluster, "stopped", arguments=["--quiet"])
    pid = job.ranks()[3][1]
    result = end_after(job, lambda: os.kill(pid, signal.SIGSTOP))
    failed("B174 a rank of another host is stopped for good", result, "timeout", r"rank 3\b.* has been silent",
           r"stage \d", r"sequence \d+", r"step \d+")


def rank_stops_for_a_while(cluster):  # B174
    quiet = {"arguments": ["--quiet"], "prompts": PROMPTS * 4, "new": 200}
    reference = long_job(cluster, "unstopped", **quiet).finish(60)
    job = long_job(cluster, "stopped-a-while", **quiet)
    pid = job.ranks()[3][1]

    def pause():
        os.kill(pid, signal.SIGSTOP)
        time.sleep(TIMEOUT / 2)
        os.kill(pid, signal.SIGCONT)

    result = end_after(job, pause)
    if expecting.success(tally, "B174 a rank of another host is stopped for less than the timeout", result):
        tally.check(result.out == reference.out and result.out, "B174 and the same text",
                    result.summary() + reference.summary())


def signals_pass(cluster):
    job = long_job(cluster, "terminated", launch=LAUNCH)
    launcher = next(pid for pid in job.named("python3") if pid)
    result = end_after(job, lambda: os.kill(launcher, signal.SIGTERM))
    tally.check(1 <= result.code <= 125 and not result.left and result.seconds < GRACE and
                not expecting.causes(result), "SIGTERM to launch ends the job on all hosts", result.summary())


def launch_passes_everything_on(cluster):
    path = topology("launched", {"pipeline": 2, "tensor": 2})
    result = cluster.run(4, ["run", path, "--json"], launch=LAUNCH)
    expecting.success(tally, "a good run under launch", result)
    tally.check(len(result.objects()) == len(PROMPTS), "its output passes", result.summary())
    result = cluster.run(4, ["run", os.path.join(hosts.SHARED, "no-such.yaml")], launch=LAUNCH)
    expecting.failure(tally, "a bad topology under launch", result, "storage", r"no-such\.yaml", within=GRACE)
    result = hosts.Job(cluster, [sys.executable, hosts.LAUNCH, "--", "no-such-mpirun"]).finish(20)
    tally.check(result.code == 2 and "no program no-such-mpirun" in result.err, "launch without an mpirun",
                result.summary())


# ---- interfaces, folders -------------------------------------------------------------------------------


def test_interface():
    with hosts.Cluster(2) as cluster:
        interface_that_is_missing(cluster)
        folder_not_shared(cluster)
        rank_that_never_comes(cluster)
        same_address_twice(cluster)


def same_address_twice(cluster):  # B54
    for host in cluster.hosts:
        host.do("ip", "link", "add", "docker0", "type", "bridge")
        host.do("ip", "link", "add", "inside", "type", "veth", "peer", "name", "outside")
        host.do("ip", "link", "set", "inside", "master", "docker0", "up")  # a bridge has a carrier when a port has one
        host.do("ip", "link", "set", "outside", "up")
        host.do("ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
        host.do("ip", "link", "set", "docker0", "up")
    named = topology("named-interface", {"pipeline": 2, "tensor": 2}, interface="eth0")
    result = cluster.run(4, ["run", named, "--json"], interface=None)
    expecting.success(tally, "B54 two hosts with a docker0 of one address, and the interface named in the topology", result)
    unnamed = topology("unnamed-interface", {"pipeline": 2, "tensor": 2})
    result = cluster.run(4, ["run", unnamed, "--json"], interface=None, launch=LAUNCH)
    if result.code == 0:
        tally.check(not result.left, "B54 without the interface MPI found its way", result.summary())
    else:
        expecting.failure(tally, "B54 without the interface the end is in time and says which", result,
                          "timeout", r"all 4 ranks have come, but MPI does not connect them: communication\.interface must "
                          r"name .*node1 has .*eth0 \(10\..*docker0 \(172\.17\.0\.1\)", within=30)


def interface_that_is_missing(cluster):
    path = topology("no-such-interface", {"pipeline": 2}, interface="eth7")
    result = cluster.run(2, ["run", path], interface=None)
    expecting.failure(tally, "an interface that no host has", result, "environment",
                      r"communication\.interface: eth7: no such interface on \S*node\d; it has .*eth0 \(10\.", within=15)


def folder_not_shared(cluster):
    """run_dir on each host's own /tmp: the run is good and says so once; a failure is told all the same."""
    path = topology("own-folders", {"pipeline": 2}, run_dir="/tmp/runs")
    result = cluster.run(2, ["run", path, "--json"])
    expecting.success(tally, "a run_dir that the hosts do not share", result)
    tally.check(len(re.findall(r"run_dir: \S+ is not the folder that rank 0 writes to", result.err)) == 1 and
                "on %s" % cluster.names[1] in result.err, "it is said once, with the host", result.summary())
    result = cluster.run(2, ["run", path, "--fault", "rank=1,op=9,kind=stop"])
    failed("a stopped rank without a shared run_dir", result, "timeout", r"rank 1 .*has been silent",
           r"rank 1 runs on %s" % cluster.names[1], within=TIMEOUT + GRACE + START)


def rank_that_never_comes(cluster):
    """The last rank of four sleeps instead of starting: where the hosts share the folder it is named, else nobody is accused."""
    for name, run_dir, needle, absent in (
            ("shared", os.path.join(hosts.SHARED, "runs-missing"), r"rank 3 has not come", r"not.{0,20}shared"),
            ("of its own", "/tmp/runs-missing", r"MPI start has not ended .*shared", r"rank \d has not come")):
        path = topology("missing-" + name.replace(" ", "-"), {"pipeline": 4}, run_dir=run_dir, startup_timeout="4s")
        script = '[ "$OMPI_COMM_WORLD_RANK" = 3 ] && exec sleep 60; exec "%s" run "%s"' % (running.FERRY, path)
        result = cluster.run(4, ["-c", script], program=["sh"], launch=LAUNCH)
        expecting.failure(tally, "a rank of another host never comes, run_dir " + name, result, "timeout", needle,
                          within=4 + GRACE + START, absent=[absent],
                          printed=1 if name == "shared" else None)  # hosts that share nothing may each say it


# ---- the fault matrix ----------------------------------------------------------------------------------

MATRIX_CLUSTERS = 6  # most of the time all of them wait
MATRIX_STARTUP = 6
START = 5  # seconds that a start takes at most on a busy machine


def matrix_topology(name, run_dir=None):
    return topology(name, {"pipeline": 2}, prompts=["t", "there is a line"], new=4,
                    model=os.path.join(running.TINY, "llama"), run_dir=run_dir, startup_timeout="%ds" % MATRIX_STARTUP)


def test_matrix():
    """Two hosts, a rank on each; the fault is on the second host, of a rank that mpirun does not share a host with."""
    where = os.path.join(hosts.SHARED, "runs-learn")
    free = [hosts.Cluster(2) for _ in range(MATRIX_CLUSTERS)]
    reference = free[0].run(2, ["run", matrix_topology("learn", where), "--json"])
    if not expecting.success(tally, "the job without a fault", reference):
        return
    delivered = [o["tokens"] for o in reference.objects()]
    cases = fault_matrix.cases(fault_matrix.read_run(where)[1], 1, TIMEOUT, MATRIX_STARTUP)
    tally.check({case.phase for case in cases} == set(fault_matrix.PHASES) and
                {case.kind for case in cases} == set(fault_matrix.KINDS), "the matrix is whole")
    ended = {}
    path = matrix_topology("matrix")
    spread([lambda cluster, case=case: rehearse(cluster, path, case, delivered, ended) for case in cases], free)
    print(fault_matrix.table(ended), file=sys.stderr)


def rehearse(cluster, path, case, delivered, ended):
    result = cluster.run(2, ["run", path, "--json", "--fault", case.option])
    node = cluster.names[1]
    # What is promised counts from the fault; the daemons and MPI have to start before.
    good = fault_matrix.judge(tally, case._replace(within=case.within + START), result, delivered)
    good = tally.check(node in result.err, fault_matrix.name(case) + ": its host is named", result.summary()) and good
    ended[case.rank, case.phase, case.kind] = "%s %.1f s%s" % (result.code, result.seconds, "" if good else " !")


def main():
    hosts.enter()
    parts = {"runs": test_runs, "cables": test_cables, "ends": test_ends, "interface": test_interface,
             "matrix": test_matrix}
    for name in sys.argv[1:] or parts:
        parts[name]()
    tally.finish()


main()
