"""Runs the built ferry for the tests: writes topologies, starts mpirun, reads JSON lines.

Standard library only.  FERRY names the program; MPIRUN the launcher.  Every run has a deadline; a run that outlives it is
ended together with what it started, and fails its test.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FERRY = os.environ.get("FERRY", os.path.join(ROOT, "build", "ferry"))
MPIRUN = os.environ.get("MPIRUN", "mpirun")
SMOLLM2 = os.path.join(ROOT, "models", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
KJV = os.path.join(ROOT, "models", "kjv")


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def objects(self):
        """The JSON lines of standard output, by prompt number."""
        objects = [json.loads(line) for line in self.out.splitlines()]
        return sorted(objects, key=lambda o: o.get("prompt", 0))


def environment(extra=None):
    env = dict(os.environ)
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none")
    env.update(extra or {})
    return env


def execute(command, timeout=120, extra_env=None, stdin=None, cwd=None):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                               env=environment(extra_env), cwd=cwd, start_new_session=True)
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return Result(-1, out.decode(errors="replace"),
                      err.decode(errors="replace") + "\nTEST: outlived %d s" % timeout)
    return Result(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def mpirun(ranks, arguments, **options):
    return execute([MPIRUN, "--oversubscribe", "-n", str(ranks), FERRY] + arguments, **options)


def write_topology(folder, name, mesh=None, generate=None, text="", **sections):
    """A topology file; JSON is YAML.  Returns its path."""
    topology = {"ferry": 1, "name": name}
    if mesh:
        topology["mesh"] = mesh
    topology.update(sections)
    if generate is not None:
        topology["workload"] = {"generate": generate}
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(topology, file, ensure_ascii=False, indent=1)
        file.write("\n" + text)
    return path


def world(mesh):
    ranks = 1
    for size in (mesh or {}).values():
        ranks *= size
    return ranks


def generate(mesh, generate_keys, arguments=(), name="test", timeout=300, **sections):
    """Run one generation with --json on the ranks that the mesh needs."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_topology(folder, name, mesh, generate_keys, **sections)
        return mpirun(world(mesh), ["run", path, "--json"] + list(arguments), timeout=timeout)


class Tally:
    """Counts checks, prints each failure, ends with TAP for the test runner."""

    def __init__(self):
        self.lines, self.failed = [], 0

    def check(self, good, name, detail=""):
        self.lines.append(("ok" if good else "not ok", name))
        if not good:
            self.failed += 1
            print("FAILED: %s\n%s" % (name, detail), file=sys.stderr)
        return good

    def skip(self, name, why):
        self.lines.append(("ok", "%s # SKIP %s" % (name, why)))

    def finish(self):
        print("1..%d" % len(self.lines))
        for number, (state, name) in enumerate(self.lines, 1):
            print("%s %d %s" % (state, number, name.replace("\n", " ")))
        sys.exit(1 if self.failed else 0)
