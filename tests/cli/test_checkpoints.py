"""Checkpoints in every legal shape give the same bits; odd ones are noted or refused; a rank reads what it owns."""

import concurrent.futures
import os
import re
import shutil

import expecting
from expecting import running
from model_files import Folder, Gguf, read_safetensors, write_safetensors

FOLDER = running.scratch("checkpoints")
PROMPTS = ["t", "there is a ferry in the harbo"]
tally = running.Tally()


def tiny(name):
    return os.path.join(running.TINY, name)


def run(model, mesh=None, prompts=None, **sections):
    keys = {"model": model, "prompts": prompts or PROMPTS, "max_new_tokens": 4, "ignore_eos": True}
    keys.update(sections.pop("keys", {}))
    if not mesh:
        sections["world"] = 1
    return running.generate(mesh, keys, ["--logits-digest"], timeout=60, **sections)


def digests(result):
    return [o["logits_digest"] for o in result.objects()] if result.code == 0 else None


def same(name, result, reference):
    """Both ran, and every logit of every step has the same bits."""
    if expecting.success(tally, name, result):
        tally.check(digests(result) == digests(reference) and digests(result), name + ": the same logits",
                    result.summary() + reference.summary())


def place(name):
    return os.path.join(FOLDER, name)


# ---- safetensors ---------------------------------------------------------------------------------------


def test_unaligned():  # B99
    for model in ("llama", "llama-tied"):
        reference = run(tiny(model))
        for pad in (0, 1):
            def shift(tensors):
                return {"first": ("U8", [3], b"\1\2\3"), **tensors}

            folder = Folder(tiny(model), FOLDER, "unaligned-%s-%d" % (model, pad)).tensors(shift, pad=pad)
            same("B99 %s, tensors at odd addresses, header padded by %d" % (model, pad), run(folder.path), reference)
        folder = place("unaligned-%s-1" % model)
        same("B99 %s, odd addresses, two tensor ranks" % model, run(folder, {"tensor": 2}),
             run(tiny(model), {"tensor": 2}))


def test_stray_file():  # B106
    folder = Folder(tiny("llama-shards"), FOLDER, "stray")
    tensors = {}
    for number in (1, 2, 3):
        tensors.update(read_safetensors(folder.file("model-%05d-of-00003.safetensors" % number)))
    other = {name: (dtype, shape, bytes(reversed(data))) for name, (dtype, shape, data) in tensors.items()}
    write_safetensors(folder.file("model.safetensors"), other)
    result = run(folder.path)
    same("B106 a stray model.safetensors beside an index", result, run(tiny("llama-shards")))
    tally.check(re.search(r"index\.json.*model\.safetensors", result.err), "B106 it is noted", result.summary())


def test_tied():  # B107
    def untie(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]

    reference = run(tiny("llama-tied"))
    folder = Folder(tiny("llama-tied"), FOLDER, "untied").tensors(untie).config(tie_word_embeddings=False)
    same("B107 a tied head and its untied copy", run(folder.path), reference)
    for mesh in ({"pipeline": 2}, {"tensor": 2}):
        pieces = {"compute": {"pieces": 2}}
        same("B107 tied and untied over %s" % mesh, run(folder.path, mesh, **pieces),
             run(tiny("llama-tied"), mesh, **pieces))
    folder = Folder(tiny("llama-tied"), FOLDER, "tied-with-copy").tensors(untie)
    same("B107 a tied head that is stored all the same", run(folder.path), reference)
    folder = Folder(tiny("llama-tied"), FOLDER, "lost-head").config(tie_word_embeddings=False)
    expecting.failure(tally, "B107 no head, and not tied", run(folder.path), "model", r"lm_head\.weight", r"missing")


def test_extra_tensor():  # B111
    folder = Folder(tiny("llama"), FOLDER, "extra")
    folder.tensors(lambda tensors: {**tensors, "model.extra.weight": ("F32", [2, 2], bytes(16))})
    result = run(folder.path, {"pipeline": 2})
    same("B111 a tensor that belongs to no parameter", result, run(tiny("llama")))
    tally.check(len(re.findall(r"model\.extra\.weight", result.err)) == 1, "B111 one warning names it",
                result.summary())


def test_unused_types():  # B101
    floats = {"F64": 8, "I64": 8, "I32": 4, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}
    folder = Folder(tiny("llama"), FOLDER, "types")
    folder.tensors(lambda tensors: {**{"x." + name: (name, [2], bytes(2 * size)) for name, size in floats.items()},
                                    **tensors})
    same("B101 tensors of other types beside the model's", run(folder.path), run(tiny("llama")))
    name = "model.layers.0.mlp.up_proj.weight"
    folder = Folder(tiny("llama"), FOLDER, "f8")

    def shrink(tensors):
        dtype, shape, data = tensors[name]
        tensors[name] = ("F8_E4M3", shape, data[:len(data) // 4])

    folder.tensors(shrink)
    expecting.failure(tally, "B101 a weight of a type that is not built", run(folder.path), "model",
                      re.escape(name), r"F8_E4M3")


# ---- GGUF ----------------------------------------------------------------------------------------------


def test_alignment():  # B116
    for model in ("llama-floats", "qwen2"):
        gguf = Gguf(tiny(model + ".gguf"))
        reference = run(tiny(model + ".gguf"))
        for alignment in (None, 64, 8):
            path = gguf.write(place("%s-%s.gguf" % (model, alignment)), alignment)
            same("B116 %s aligned to %s" % (model, alignment or "the default"), run(path), reference)
    for alignment in (0, 24, 3):
        path = gguf.write(place("bad-%d.gguf" % alignment), 32)
        with open(path, "rb+") as file:
            content = file.read()
            at = content.index(b"general.alignment") + len("general.alignment") + 4
            file.seek(at)
            file.write(alignment.to_bytes(4, "little"))
        result = run(path)
        if alignment == 24:
            tally.check(result.code in (0, 4), "B116 an alignment of 24 is read or refused", result.summary())
        else:
            expecting.failure(tally, "B116 an alignment of %d" % alignment, result, "model", r"alignment",
                              r"\b%d\b" % alignment)


def test_split():  # B124
    gguf = Gguf(tiny("qwen3.gguf"))
    reference = run(tiny("qwen3.gguf"))
    folder = place("split")
    os.mkdir(folder)
    parts = gguf.write_split(folder, "qwen3", 3)
    same("B124 three parts", run(parts[0]), reference)
    same("B124 three parts, two stages", run(parts[0], {"pipeline": 2}), reference)
    expecting.failure(tally, "B124 the second part is opened", run(parts[1]), "model", r"part 2 of 3",
                      r"qwen3-00001-of-00003\.gguf")
    os.rename(parts[2], parts[2] + ".away")
    expecting.failure(tally, "B124 the third part is missing", run(parts[0], {"pipeline": 2}), "model",
                      r"qwen3-00003-of-00003\.gguf")
    os.rename(parts[2] + ".away", parts[2])
    renamed = shutil.copy(parts[0], os.path.join(folder, "first.gguf"))
    expecting.failure(tally, "B124 the first part under another name", run(renamed), "model", r"-00001-of-00003\.gguf")
    swapped = place("swapped")
    os.mkdir(swapped)
    for source, target in ((0, 0), (1, 2), (2, 1)):
        shutil.copy(parts[source], os.path.join(swapped, os.path.basename(parts[target])))
    expecting.failure(tally, "B124 two parts have changed their names",
                      run(os.path.join(swapped, os.path.basename(parts[0]))), "model", r"part 2 of 3|part 3 of 3")


# ---- cuts ----------------------------------------------------------------------------------------------


def test_uneven_cuts():
    """Row slices and packed columns of uneven shares against one rank that owns everything."""
    odd = [{"tokens": [5]}, {"tokens": [5, 9, 33, 2, 71, 40, 18]}]
    for model, mesh, pieces in (("llama-9-heads", {"tensor": 2}, 2), ("llama-odd", {"tensor": 4}, 4),
                                ("qwen2.gguf", {"tensor": 2}, 2), ("llama-bias", {"tensor": 3}, 4),
                                ("qwen3", {"pipeline": 2, "tensor": 2}, 2)):
        options = {"prompts": odd, "compute": {"pieces": pieces}}
        same("uneven shares of %s over %s" % (model, mesh), run(tiny(model), mesh, **options),
             run(tiny(model), **options))


UNIT = {"B": 1, "kB": 1e3, "MB": 1e6}
LINE = re.compile(r"^  rank (\d+) +weights owned ([\d.]+) (\w+) \(replicas ([\d.]+) (\w+)\), read ([\d.]+) (\w+), "
                  r"resident", re.MULTILINE)


def test_bytes_read():
    """Owned and read agree within 1 %; over all ranks the weights are there once, and their replicas.  Small models:
    the summary shows one decimal, of kilobytes here."""
    for model in ("llama-9-heads", "llama-tied"):
        tensors = read_safetensors(os.path.join(tiny(model), "model.safetensors"))
        stored = sum(len(data) for _, _, data in tensors.values())
        for mesh in (None, {"pipeline": 2}, {"tensor": 2}, {"pipeline": 2, "tensor": 2}):
            result = run(tiny(model), mesh)
            name = "bytes of %s over %s" % (model, mesh or "one rank")
            if not expecting.success(tally, name, result):
                continue
            rows = [[float(row[i]) * UNIT[row[i + 1]] for i in (1, 3, 5)] for row in LINE.findall(result.err)]
            if not tally.check(len(rows) == running.world(mesh), name + ": a line for every rank", result.summary()):
                continue
            tally.check(all(abs(read - owned) <= 0.01 * owned for owned, _, read in rows),
                        name + ": owned and read agree", result.summary())
            whole = sum(owned - replica for owned, replica, _ in rows)
            tally.check(abs(whole - stored) <= 0.01 * stored, name + ": each weight is owned once, apart from replicas",
                        "%s of %s bytes\n%s" % (whole, stored, result.summary()))


def main():
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(test) for test in tests]:
            done.result()
    tally.finish()


main()
