"""The same bits however the work is cut: logits digests over meshes, SIMD paths, threads, batches and chunks.

usage: test_digests.py CASE [MODEL]...      split | batch | simd | meshes | uneven | compilers
The reference is one rank, one thread, the plain path, every prompt alone.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running

MODELS = os.path.join(running.ROOT, "tests", "parity", "models")
PROMPTS = ["In the beginning", "t", "And it came to pass, that when the LORD had spoken unto Moses, saying,",
           "Blessed", "The word of the LORD came unto me again: Son of man"]
# For a model without a tokenizer of whole bytes.
IDS = [{"tokens": [(7 * i + 3 * n) % 97 for i in range(length)]} for n, length in enumerate((5, 1, 23, 2, 40))]
NEW = 12
tally = running.Tally()


def prompts_of(model):
    return IDS if model.endswith("llama-odd") else PROMPTS


def keys(model, **more):
    generate = {"model": model, "prompts": prompts_of(model), "max_new_tokens": NEW, "ignore_eos": True}
    generate.update(more)
    return generate


def digests(model, mesh=None, compute=None, threads=1, **generate):
    """One digest a prompt, or None and the reason."""
    sections = {"compute": dict({"simd": "plain"}, **(compute or {})), "placement": {"threads": threads}}
    if not mesh:
        sections["world"] = 1
    result = running.generate(mesh, keys(model, **generate), ["--logits-digest"], **sections)
    if result.code:
        return None, result.err
    return [o["logits_digest"] for o in result.objects()], result.err


def same(name, expected, **options):
    got, err = digests(**options)
    tally.check(got == expected, name, "digests %s, expected %s\n%s" % (got, expected, err))


def reference(model, pieces=None):
    alone = []
    compute = {"pieces": pieces} if pieces else {}
    for prompt in prompts_of(model):
        got, err = digests(model, compute=compute, prompts=[prompt])
        if not got:
            tally.check(False, "reference", err)
            tally.finish()
        alone += got
    tally.check(len(set(alone)) == len(PROMPTS), "reference: prompts differ", alone)
    return alone


def cpu_has(flag):
    with open("/proc/cpuinfo", encoding="ascii") as file:
        return flag in file.read().split()


def batch(model):
    expected = reference(model)
    for name, options in (("twice", {}), ("together", {"microbatch": 5}), ("microbatch 1", {"microbatch": 1}),
                          ("microbatch 3", {"microbatch": 3}), ("chunk 1", {"prompt_chunk": 1}),
                          ("chunk 3", {"prompt_chunk": 3}), ("chunk 7", {"prompt_chunk": 7})):
        same(name, expected, model=model, **options)


def split(model):
    expected = reference(model)
    for mesh in ({"pipeline": 2}, {"pipeline": 3}, {"pipeline": 4}, {"data": 2}, {"data": 2, "pipeline": 2},
                 {"data": 3}, {"pipeline": 4, "data": 1}):
        same("mesh %s" % mesh, expected, model=model, mesh=mesh)
    same("uneven layers", expected, model=model, mesh={"pipeline": 2}, layers=[1, layers_of(model) - 1])
    same("pipeline 2, chunk 2, microbatch 2", expected, model=model, mesh={"pipeline": 2}, prompt_chunk=2, microbatch=2)


def layers_of(model):
    import json
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        return json.load(file)["num_hidden_layers"]


def simd(model):
    expected = reference(model)
    for path, flag in (("plain", "fpu"), ("avx2", "avx2"), ("avx512", "avx512f")):
        for threads in (1, 2, 3):
            name = "%s, %d threads" % (path, threads)
            if cpu_has(flag):
                same(name, expected, model=model, compute={"simd": path}, threads=threads)
            else:
                tally.skip(name, "this processor has no %s" % path)


def meshes(model):
    """With equal pieces every mesh of one to four ranks gives the same bits."""
    expected = reference(model, pieces=4)
    for pipeline in (1, 2, 3, 4):
        for tensor in (1, 2, 4):
            for data in (1, 2):
                mesh = {"pipeline": pipeline, "tensor": tensor, "data": data}
                if running.world(mesh) <= 4:
                    same("pieces 4, mesh %s" % mesh, expected, model=model, mesh=mesh,
                         compute={"pieces": 4, "simd": "auto"})
    other = reference(model)
    tally.check(other != expected, "pieces change the bits", "the test would not see a lost piece")
    same("pieces 4, tensor 3", expected, model=model, mesh={"tensor": 3}, compute={"pieces": 4})


def uneven(model):
    """Heads, feed-forward and vocabulary that do not divide; packed types cut between blocks (B139, B141)."""
    for name, pieces, tensors in (("llama-odd", 3, (2, 3)), ("llama-odd", 6, (1, 4)), ("llama-9-heads", 2, (2,)),
                                  ("llama-9-heads", 9, (4,)), ("qwen2", 2, (2,)), ("qwen3", 2, (2,)),
                                  ("llama-k.gguf", 2, (2,)), ("qwen2.gguf", 2, (2,)), (running.SMOLLM2, 2, (2,))):
        path = name if os.path.isabs(name) else os.path.join(MODELS, name)
        if not os.path.exists(path):
            tally.skip(name, "the model is not at hand")
            continue
        expected, err = digests(path, compute={"pieces": pieces, "simd": "auto"}, threads=2)
        tally.check(expected is not None, "%s, %d pieces" % (name, pieces), err)
        for tensor in tensors:
            same("%s, %d pieces, tensor %d" % (os.path.basename(name), pieces, tensor), expected, model=path,
                 mesh={"tensor": tensor}, compute={"pieces": pieces, "simd": "auto"})
        same("%s, %d pieces, pipeline 2" % (os.path.basename(name), pieces), expected, model=path,
             mesh={"pipeline": 2} if name != "llama-k.gguf" else {"data": 2}, compute={"pieces": pieces, "simd": "auto"})


def compilers(model):
    """The program of the other compiler, when the tests run for it: FERRY_REFERENCE."""
    other = os.environ.get("FERRY_REFERENCE", "")
    if not os.path.exists(other):
        tally.skip("compilers", "no FERRY_REFERENCE to compare with")
        return
    mine, err = digests(model, compute={"simd": "auto"})
    running.FERRY, own = other, running.FERRY
    theirs, _ = digests(model, compute={"simd": "plain"})
    running.FERRY = own
    tally.check(mine is not None and mine == theirs, "compilers agree", "%s, %s\n%s" % (mine, theirs, err))


case = sys.argv[1]
for name in sys.argv[2:] or [running.KJV]:
    path = name if os.path.isabs(name) else os.path.join(MODELS, name)
    {"batch": batch, "split": split, "simd": simd, "meshes": meshes, "uneven": uneven, "compilers": compilers}[case](path)
tally.finish()
