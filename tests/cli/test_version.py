"""What `ferry version` says of this build and this machine.

Standard library only.  FERRY is the program, STANDIN (may be empty) the folder with libraries that stand in for CUDA's,
CC a C compiler.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running

STANDIN = os.environ.get("STANDIN", "")
NO_LEAKS = {"ASAN_OPTIONS": "detect_leaks=0"}  # MPI and CUDA keep what they allocated
tally = running.Tally()


def ferry(*arguments, program=running.FERRY, **variables):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60 * running.PATIENCE,
                          env=running.environment({**NO_LEAKS, **variables}))
    return running.Result(done.returncode, done.stdout, done.stderr)


def expect(name, result, code, says=(), absent=()):
    words = result.out + result.err
    tally.check(result.code == code and all(s in words for s in says) and not any(s in words for s in absent), name,
                result.summary())


def of_kind(result, kind):
    return [thing for thing in (json.loads(line) for line in result.out.splitlines()) if thing["kind"] == kind]


def versions():
    short = ferry("--version")
    tally.check(short.code == 0 and len(short.out.splitlines()) == 1 and short.out.startswith("ferry "),
                "--version prints one line", short.summary())
    long = ferry("version")
    tally.check(long.code == 0 and long.out.startswith(short.out), "version begins with the same line", long.summary())
    said = of_kind(ferry("version", "--json"), "version")
    tally.check(len(said) == 1 and short.out == f"ferry {said[0]['version']}\n", "--json tells the same version")
    expect("an argument is a usage error", ferry("version", "x"), 2)
    expect("help explains the command", ferry("help", "version"), 0, ["--json"])


def plugins():
    said = {plugin["name"]: plugin for plugin in of_kind(ferry("version", "--json"), "plugin")}
    tally.check(sorted(set(said) - {"cuda-staged"}) == ["cuda", "mpi"] and
                ("cuda-staged" in said) == ("missing" in said["cuda"]), "the plugins are told of", said)
    for name in ("mpi", "cuda"):
        built = os.path.exists(os.path.join(os.path.dirname(running.FERRY), f"ferry-{name}.so"))
        tally.check(("path" in said[name]) == built and ("missing" in said[name]) != built,
                    f"{name}: a path, or what is missing")
    if "libraries" in said["mpi"]:
        tally.check(said["mpi"]["libraries"][0]["name"] == "MPI" and said["mpi"]["libraries"][0]["running"] != "",
                    "the MPI library names itself")


def alone(folder):
    program = shutil.copy(running.FERRY, folder)
    result = ferry("version", program=program)
    expect("a program without plugins says where it looked", result, 0,
           [f"ferry-mpi.so is in none of {folder}", f"ferry-cuda.so is in none of {folder}", "-Dcuda=enabled"])


def unloadable(folder):
    """A plugin whose library is gone."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    library = os.path.join(folder, "libcudart-gone.so.13")
    plugin = os.path.join(folder, "ferry-cuda.so")
    source = os.path.join(folder, "empty.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("int nothing(void);\nint nothing(void)\n{\n    return 0;\n}\n")
    subprocess.run([*compiler, "-shared", "-fPIC", "-Wl,-soname,libcudart-gone.so.13", "-o", library, source], check=True)
    with open(source, "w", encoding="utf-8") as file:
        file.write("int nothing(void);\nint something(void);\nint something(void)\n{\n    return nothing();\n}\n")
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", plugin, source, library], check=True)
    os.unlink(library)
    result = ferry("version", FERRY_PLUGIN_DIR=folder)
    expect("a library that the loader does not find is named", result, 0,
           ["libcudart-gone.so.13", "install the CUDA 13 runtime and NCCL", "LD_LIBRARY_PATH"])


def devices():
    if not STANDIN:
        tally.skip("devices", "built without CUDA")
        return
    said = of_kind(ferry("version", "--json", LD_LIBRARY_PATH=STANDIN, FERRY_STANDIN_DEVICES="3"), "device")
    tally.check([device["device"] for device in said] == ["cuda:0", "cuda:1", "cuda:2"], "every device is listed")
    tally.check(len({device["pci"] for device in said}) == 3 and len({device["uuid"] for device in said}) == 3 and
                all(device["memory_bytes"] == 1 << 30 for device in said), "with PCI id, UUID and memory")
    expect("and for people", ferry("version", LD_LIBRARY_PATH=STANDIN), 0,
           ["cuda:3\n", said[0]["pci"], said[2]["uuid"], "1.1 GB"])
    shown = of_kind(ferry("version", "--json", LD_LIBRARY_PATH=STANDIN, CUDA_VISIBLE_DEVICES="2"), "device")
    tally.check([device["pci"] for device in shown] == [said[2]["pci"]], "only those that are visible")
    choices = {choice["memory"]: choice for choice in
               of_kind(ferry("version", "--json", LD_LIBRARY_PATH=STANDIN, FERRY_STANDIN_DEVICES="3"), "choice")}
    tally.check(all(choices[memory]["transport"] == "nccl" and choices[memory]["device"] == "cuda:0" and
                    choices[memory]["tensors"] == "device memory" for memory in ("auto", "device")),
                "what a rank would take: nccl on its GPU", choices)
    choices = {choice["memory"]: choice for choice in
               of_kind(ferry("version", "--json", LD_LIBRARY_PATH=STANDIN, FERRY_STANDIN_DEVICES="0"), "choice")}
    tally.check(choices["auto"]["transport"] == "mpi" and choices["auto"]["tensors"] == "host memory" and
                "device" not in choices["auto"] and "transport" not in choices["device"] and
                "communication.memory: device: not every rank has a GPU" in choices["device"]["missing"],
                "without a GPU: mpi, and what device memory lacks", choices)
    with tempfile.TemporaryDirectory(prefix="ferry-broken-") as broken:
        with open(os.path.join(broken, "libnccl.so.2"), "w", encoding="utf-8") as file:
            file.write("no library")
        result = ferry("version", "--json", LD_LIBRARY_PATH=broken + ":" + STANDIN)
    choices = {choice["memory"]: choice for choice in of_kind(result, "choice")}
    tally.check([plugin["name"] for plugin in of_kind(result, "plugin")] == ["mpi", "cuda", "cuda-staged"] and
                len(of_kind(result, "device")) == 4 and choices["auto"]["tensors"] == "host memory" and
                choices["device"]["transport"] == "mpi" and choices["device"]["device"] == "cuda:0" and
                choices["device"]["tensors"] == "device memory, staged through pinned host memory" and
                "libnccl.so.2" in choices["device"]["why"], "without NCCL's library: mpi, staged", result.summary())
    for name, variable, value, words in (
            ("no driver", "FERRY_STANDIN_DRIVER", "0", "no CUDA driver on this machine"),
            ("an old driver", "FERRY_STANDIN_DRIVER", "12080", "too old: it knows CUDA 12.8"),
            ("no device", "FERRY_STANDIN_DEVICES", "0", "no CUDA device on this machine"),
            ("no visible device", "CUDA_VISIBLE_DEVICES", "", 'CUDA_VISIBLE_DEVICES is ""')):
        expect(f"{name} is said", ferry("version", LD_LIBRARY_PATH=STANDIN, **{variable: value}), 0,
               ["devices\n  missing", words])
    if os.path.exists("/dev/nvidiactl"):
        tally.skip("the real library without a driver", "this machine has one")
    else:
        expect("the real library without a driver", ferry("version", LD_LIBRARY_PATH=""), 0,
               ["CUDA driver     none", "no CUDA driver"])


with tempfile.TemporaryDirectory(prefix="ferry-version-") as place:
    versions()
    plugins()
    os.mkdir(os.path.join(place, "alone"))
    alone(os.path.join(place, "alone"))
    unloadable(place)
    devices()
tally.finish()
