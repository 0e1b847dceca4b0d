"""Kernels executed on processors that this machine does not have: bits, the choice of a path, refusals.

usage: test_processors.py CASE REACHED KERNELS...      avx512 | runs | avx2 | plain
REACHED, KERNELS: the built programs of those names, the second for each compiler.
FERRY names the program, FERRY_KERNEL the Linux kernel to boot.

What must come out is computed here, by the plain path; what comes out there must have the same bits.
"""

import hashlib
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import machine
from machine import running

tally = running.Tally()
# Of Bochs: the first has AVX-512 (F, BW, DQ, VL), the second AVX2 and no AVX-512, the third AVX alone.
PROCESSORS = {"avx512": "corei7_skylake_x", "runs": "corei7_skylake_x", "avx2": "corei7_haswell_4770",
              "plain": "corei7_sandy_bridge_2600k"}
MODELS = {"kjv": running.KJV, "k-gguf": os.path.join(running.TINY, "llama-k.gguf"),
          "floats-gguf": os.path.join(running.TINY, "llama-floats.gguf"),
          "qwen2-gguf": os.path.join(running.TINY, "qwen2.gguf")}
PROMPTS = ["And it came to pass, that when the LORD had spoken unto Moses, saying, Speak", "t"]
# One process without a launcher, and without the parts of Open MPI that look for a network.
ALONE = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_ess_singleton_isolated": "1",
         "OMPI_MCA_mca_base_component_show_load_errors": "0", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self"}


def add_open_mpi(there):
    """The parts that Open MPI opens by name, where its library looks for them; those that need more libraries, for
    networks, are passed over there.  False: there is no Open MPI here."""
    plugin = os.path.join(os.path.dirname(running.FERRY), "ferry-mpi.so")
    told = subprocess.run(["ompi_info", "--parsable", "--path", "pkglibdir"], capture_output=True, text=True)
    found = re.search(r"pkglibdir:(/\S+)", told.stdout)
    if not os.path.exists(plugin) or not found:
        return False
    there.add("/ferry/ferry-mpi.so", plugin)
    for folder, _, names in os.walk(found[1]):
        for name in names:
            if name.startswith("mca_"):
                path = os.path.join(folder, name)
                there.add(path, path, with_libraries=False)
    return True


def digests(out):
    """{prompt: digest} of ferry's JSON lines among what a command wrote."""
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {line["prompt"]: line["logits_digest"] for line in lines}


class Commands:
    """Commands for the machine, each with the check of what it gave."""

    def __init__(self, there):
        self.there, self.list = there, []

    def add(self, name, command, check):
        """check(exit status, what it wrote): true where that is right."""
        self.list.append((name, command, check))

    def run(self, processor):
        results, trouble = self.there.run(processor, [command for _, command, _ in self.list])
        for number, (name, _, check) in enumerate(self.list):
            if number < len(results):
                tally.check(check(*results[number]), "%s: %s" % (processor, name), "exit %d\n%s" % results[number])
            else:
                tally.check(False, "%s: %s" % (processor, name), "did not come to its end: %s" % trouble)
                trouble = "as above"


def expect_lines(there, program, size):
    """The plain path's lines here become a file there.  (Its path there, its MD5)."""
    lines = subprocess.run([program, "plain", "1", *size], capture_output=True, check=True).stdout
    path = "/expected-" + os.path.basename(program)
    there.write(path, lines.decode())
    return path, hashlib.md5(lines).hexdigest()


def add_kernels(commands, there, programs, cases, size=()):
    """cases: (asked path, threads, the path that must be chosen).  Every line must be the plain path's one here."""
    for program in programs:
        name = os.path.basename(program)
        there.add("/" + name, program)
        path, digest = expect_lines(there, program, size)
        for asked, threads, chosen in cases:
            words = " ".join([name, asked, str(threads), *size])
            commands.add(words, "/%s >out || exit; md5sum <out; diff %s out" % (words, path),
                         lambda code, out, chosen=chosen, digest=digest:
                         code == 0 and out.split() == [chosen, digest, "-"])


def add_refusals(commands, program, paths):
    for path in paths:
        commands.add("%s is refused" % path, "/%s %s 1" % (os.path.basename(program), path),
                     lambda code, out, path=path: code == 5 and
                     "compute.simd: this processor lacks the instructions of %s" % path in out)


def topology(model, path, simd, threads):
    generate = {"model": path, "prompts": PROMPTS, "max_new_tokens": 3, "ignore_eos": True}
    return {"ferry": 1, "name": model, "world": 1, "communication": {"transport": "mpi"},
            "compute": {"simd": simd}, "placement": {"threads": threads}, "workload": {"generate": generate}}


def add_runs(commands, there, cases):
    """cases: (model, asked path, threads, the path that must be chosen)."""
    expected = {}
    for model, simd, threads, chosen in cases:
        if model not in expected:
            there.add("/models/" + model, MODELS[model])
            path = os.path.join(there.folder, model + ".yaml")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(topology(model, MODELS[model], "plain", 1), file)
            here = running.mpirun(1, ["run", path, "--json", "--logits-digest"])
            expected[model] = digests(here.out)
            tally.check(len(expected[model]) == len(PROMPTS), "%s here, on the plain path" % model, here.summary())
        name = "%s-%s-%d" % (model, simd, threads)
        there.write("/%s.yaml" % name, json.dumps(topology(model, "/models/" + model, simd, threads)))
        commands.add("ferry run %s, %s, %d threads" % (model, simd, threads),
                     "/ferry/ferry run /%s.yaml --json --logits-digest" % name,
                     lambda code, out, model=model, chosen=chosen:
                     code == 0 and digests(out) == expected[model] and "; cpu %s," % chosen in out)


def blocks_of_wide_functions(program):
    """{where a straight run of instructions begins: its function}, for functions with registers of AVX-512 alone."""
    told = subprocess.run(["objdump", "-d", "--no-show-raw-insn", program], capture_output=True, text=True,
                          check=True).stdout
    blocks = {}
    for text in told.split("\n\n"):
        head = re.match(r"\s*([0-9a-f]+) <([^>]+)>:", text)
        if not head or not re.search(r"%(zmm\d|k[1-7]\b|[xy]mm(1[6-9]|2\d|3[01]))", text):
            continue
        lines = re.findall(r"^\s*([0-9a-f]+):\t(\S+)(?: +([0-9a-f]+) <)?", text, re.M)
        inside = {int(address, 16) for address, _, _ in lines}
        starts = {int(head[1], 16)}
        for (_, operation, target), (after, _, _) in zip(lines, lines[1:]):
            if operation.startswith("j"):
                starts |= {int(after, 16)} | ({int(target, 16)} if target else set())
        # Behind a jump that is always taken lies padding, which nothing reaches.
        padding = {int(address, 16) for address, operation, _ in lines
                   if re.match(r"(data16|cs|nop|xchg|int3)", operation)}
        for start in starts & inside - padding:
            blocks[start] = "%s at %s" % (head[2], head[1])
    return blocks


def add_reached(commands, there, reached, programs):
    """Every function with registers of AVX-512 is entered, and nearly every straight run of its instructions executed:
    what is left are rests that the callers' sizes exclude."""
    there.add("/reached", reached)
    for program in programs:
        name = os.path.basename(program)
        blocks = blocks_of_wide_functions(program)
        path, digest = expect_lines(there, program, ())
        there.write("/places-" + name, "".join("%x\n" % start for start in sorted(blocks)))
        command = "for path in avx512 plain-avx512; do /reached /places-%s /%s $path 1 2>told >out; md5sum <out; " \
            "diff %s out; grep -E '^[0-9a-f]+$' told >left-$path; done; sort left-avx512 left-plain-avx512 | uniq -d" \
            % (name, name, path)

        def check(code, out, blocks=blocks, name=name, digest=digest):
            same = [digest + "  -"] * 2
            left = {int(line, 16) for line in out.splitlines()[2:]} if out.splitlines()[:2] == same else set(blocks)
            entered = {function for start, function in blocks.items() if start not in left}
            print("%s: %d of %d straight runs in %d functions executed; not: %s" %
                  (name, len(blocks) - len(left), len(blocks), len(set(blocks.values())),
                   ", ".join("%x in %s" % (start, blocks.get(start)) for start in sorted(left))), file=sys.stderr)
            return code == 0 and len(blocks) > 500 and left <= set(blocks) and entered == set(blocks.values()) and \
                len(left) < len(blocks) / 5
        commands.add("%s: every function of AVX-512 is executed" % name, command, check)


def avx512(there, commands, reached, programs):
    add_kernels(commands, there, programs, [("auto", 1, "avx512"), ("avx512", 2, "avx512"), ("avx2", 1, "avx2")])
    add_reached(commands, there, reached, programs)


def runs(there, commands, _, __):
    if not add_open_mpi(there):
        tally.skip("ferry run", "no Open MPI here")
        tally.finish()
    there.add("/ferry/ferry", running.FERRY)
    add_runs(commands, there, [("kjv", "auto", 1, "avx512"), ("kjv", "avx512", 2, "avx512"), ("kjv", "avx2", 1, "avx2"),
                               ("k-gguf", "auto", 1, "avx512"), ("floats-gguf", "auto", 1, "avx512"),
                               ("qwen2-gguf", "auto", 1, "avx512"), ("qwen2-gguf", "plain", 1, "plain")])


def avx2(there, commands, _, programs):
    add_kernels(commands, there, programs, [("auto", 1, "avx2")])
    add_refusals(commands, programs[0], ["avx512"])


def plain(there, commands, _, programs):
    add_kernels(commands, there, programs[:1], [("auto", 1, "plain")], ("short",))
    add_refusals(commands, programs[0], ["avx2", "avx512"])


def main():
    case, reached, programs = sys.argv[1], sys.argv[2], sys.argv[3:]
    why = machine.missing()
    if why:
        print("1..0 # SKIP %s" % why)
        return
    there = machine.Machine(ALONE)
    commands = Commands(there)
    {"avx512": avx512, "runs": runs, "avx2": avx2, "plain": plain}[case](there, commands, reached, programs)
    commands.run(PROCESSORS[case])
    tally.finish()


main()
