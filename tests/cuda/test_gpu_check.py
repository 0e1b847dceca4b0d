"""scripts/gpu-check: all of it on libraries that stand in for CUDA's, its refusal without a GPU, its verdict on a failure.

Standard library only.  BUILD is the build's folder, STANDIN the one with those libraries.
"""

import os
import re
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "scripts",
                      "gpu-check")
BUILD = os.environ["BUILD"]
tally = running.Tally()


def gpu_check(*arguments, **variables):
    # In a group of its own, so that a deadline ends mpirun, too.
    with subprocess.Popen(["bash", SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=running.environment({"ASAN_OPTIONS": "detect_leaks=0", **variables}),
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=400 * running.PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
    return running.Result(process.returncode, out, err)


def table(result):
    """Name to (result, figure), of the table at the end."""
    lines = result.out.splitlines()
    start = max((i for i, line in enumerate(lines) if not line), default=0)
    head = next((i for i, line in enumerate(lines) if i > start and re.match(r"\d{4}-\d\d-\d\d, ", line)), start + 1)
    return {line[:44].strip(): tuple(line[45:].split(None, 1)) for line in lines[head + 1:-1]}


def stub(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


result = gpu_check(BUILD, "2", LD_LIBRARY_PATH=os.environ["STANDIN"], FERRY_STANDIN_DEVICES="1")
rows = table(result)
tally.check(result.code == 0 and result.out.splitlines()[-1] == f"{len(rows)} rows, 0 failed" and len(rows) >= 25,
            "everything that one GPU can show is shown", result.summary())
tally.check("\nno GPU: libraries of tests/standin did this" in result.out, "and that no GPU did", result.summary())
tally.check(rows.get("two ranks over nccl", ("",))[0] == "skipped", "what one GPU cannot show is said to be skipped")
tally.check(rows.get("promote, two executors in order, demote", ("",))[0] == "ok" and
            rows.get("two ranks on one GPU: auto takes mpi", ("",))[0] == "ok" and
            rows.get("two ranks on one GPU: device memory", ("",))[0] == "ok" and
            rows.get("two ranks on one GPU: random cases", ("",))[0] == "ok" and
            rows.get("NCCL, one rank: random cases", ("",))[0] == "ok", "executors, staging and NCCL are among it")
tally.check("ncclAllReduce" in rows.get("NCCL's sum, one rank", ("", ""))[1], "NCCL's own call is measured beside ours")

result = gpu_check(BUILD, LD_LIBRARY_PATH=os.environ["STANDIN"], FERRY_STANDIN_DEVICES="0")
tally.check(result.code == 5 and "gpu-check: no GPU here: no CUDA device on this machine" in result.err,
            "without a GPU it says so and stops", result.summary())
if os.path.exists("/dev/nvidiactl"):
    tally.skip("without a driver", "this machine has one")
else:
    result = gpu_check(BUILD, LD_LIBRARY_PATH="")
    tally.check(result.code == 5 and "gpu-check: no GPU here: no CUDA driver on this machine" in result.err,
                "without a driver, too", result.summary())

with tempfile.TemporaryDirectory(prefix="ferry-gpu-") as folder:
    result = gpu_check(folder)
    tally.check(result.code == 5 and "has no ferry-cuda.so" in result.err, "a build without CUDA is named",
                result.summary())
    # A build whose programs all do well, but for one row of one of them.
    stub(folder, "ferry-cuda.so", "")
    stub(folder, "ferry", "#!/bin/sh\n[ $1 != version ] || printf 'cuda:0\\n  name  Stub\\n'\necho text\n")
    stub(folder, "mpirun", "#!/bin/sh\nshift 3\nexec \"$@\"\n")
    for name in ("cuda/cuda_kernels", "cuda/cuda_memory", "cuda/mpi_devices", "nccl/nccl_transport",
                 "cuda/gpu_check_nccl", "nccl/nccl_session", "nccl/nccl_properties"):
        stub(folder, "tests/" + name, "#!/bin/sh\nexit 0\n")
    stub(folder, "tests/cuda/gpu_check", "#!/bin/sh\necho 'sum of f32|FAILED|differs'\nexit 1\n")
    result = gpu_check(folder, PATH=folder + ":" + os.environ["PATH"])
    rows = table(result)
    tally.check(result.code == 1 and rows.get("sum of f32", ("",))[0] == "FAILED" and
                rows.get("the table of memory, its tests", ("",))[0] == "ok" and
                rows.get("two ranks on one GPU: nccl refuses by name", ("",))[0] == "FAILED" and
                rows.get("two ranks on one GPU: device memory", ("",))[0] == "FAILED" and
                result.out.splitlines()[-1].endswith("rows, 3 failed"),
                "one failed row fails all, and a refusal that does not come is one", result.summary())
result = gpu_check("--no")
tally.check(result.code == 2 and "unknown option --no" in result.err, "an unknown option is a usage error")
tally.finish()
