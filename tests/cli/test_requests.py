"""One prompt that gives no finite result ends alone: its step is aborted everywhere, and the others keep their bits.

The models are copies with one row of the embedding that is not a number (or infinite): a prompt fails when it holds that
token, or at the token behind the one where it was generated.
"""

import os
import struct
import tempfile

import expecting
from expecting import running
from model_files import Folder

LLAMA = os.path.join(running.TINY, "llama-5-layers")
NEW = 6
PROMPTS = [{"tokens": [(11 * i + 5 * n) % 90 for i in range(length)]} for n, length in enumerate((4, 1, 9, 2, 3, 7, 5))]
MESHES = [{"pipeline": 1}, {"pipeline": 2}, {"tensor": 2}, {"data": 2}, {"pipeline": 3}, {"data": 2, "pipeline": 2}]
folder = tempfile.mkdtemp(prefix="ferry-requests-")
tally = running.Tally()


def poisoned(token, value, name):
    """The model, its embedding of token all value."""
    def change(tensors):
        kind, shape, data = tensors["model.embed_tokens.weight"]
        tensors["lm_head.weight"] = (kind, shape, data)  # the head of a tied model stays whole
        size = len(data) // shape[0]
        cell = {"F32": struct.pack("<f", value), "BF16": struct.pack("<f", value)[2:],
                "F16": struct.pack("<e", value)}[kind]
        row = cell * (size // len(cell))
        tensors["model.embed_tokens.weight"] = (kind, shape, data[:token * size] + row + data[(token + 1) * size:])

    return Folder(LLAMA, folder, name).tensors(change).config(tie_word_embeddings=False).path


def run(model, mesh, prompts=None, microbatch=2, arguments=()):
    keys = {"model": model, "prompts": prompts or PROMPTS, "max_new_tokens": NEW, "ignore_eos": True,
            "microbatch": microbatch, "prompt_chunk": 4}
    return running.generate(mesh, keys, ["--logits-digest"] + list(arguments), timeout=60,
                            compute={"pieces": 2})


def check_others(name, objects, reference, failed):
    """Everything but the failed prompts is what it is without them."""
    for number, expected in enumerate(reference):
        got = objects[number] if number < len(objects) else {}
        if number in failed:
            continue
        tally.check(got.get("logits_digest") == expected["logits_digest"] and got["tokens"] == expected["tokens"],
                    "%s: prompt %d is unharmed" % (name, number), "%s\n%s" % (got, expected))


def test_failed_prompts():
    """A token that stands in the prompt, and one that is generated; alone in its wave, and beside others."""
    reference = run(LLAMA, {"pipeline": 1}).objects()
    middle = reference[2]["tokens"][3]
    used = [t for p in reference for t in p["prompt_tokens"] + p["tokens"]]
    for label, token, value, word in (("prompt", PROMPTS[3]["tokens"][1], float("nan"), "not a number"),
                                      ("made", middle, float("inf"), "not a number")):
        model = poisoned(token, value, label)
        fails = {}  # prompt: tokens that come before it fails
        for number, p in enumerate(reference):
            ids = p["prompt_tokens"] + p["tokens"][:-1]
            if token in ids:
                fails[number] = max(0, ids.index(token) - len(p["prompt_tokens"]) + 1)
        tally.check(0 < len(fails) < len(reference) and token in used, label + ": some prompts fail, some do not", fails)
        for mesh in MESHES:
            name = "%s, %s" % (label, " ".join("%s %d" % pair for pair in mesh.items()))
            result = run(model, mesh)
            first = r"%d of %d prompts failed; the first: prompt (%s), token \d+: the logit of token \d+ is %s" % (
                len(fails), len(reference), "|".join(map(str, fails)), word)
            expecting.failure(tally, name, result, "model", first, within=30)
            objects = result.objects()
            tally.check([o["prompt"] for o in objects] == list(range(len(reference))), name + ": every prompt has its line",
                        result.summary())
            check_others(name, objects, reference, fails)
            for number, made in fails.items():
                o = objects[number] if number < len(objects) else {"finish": None, "tokens": [], "error": ""}
                tally.check(o.get("finish") == "error" and o["tokens"] == reference[number]["tokens"][:made] and
                            o.get("error", "").startswith("prompt %d, token %d: " % (number, made)),
                            "%s: prompt %d fails where it must" % (name, number), "%s\n%s" % (o, reference[number]))


def test_every_prompt_fails():
    """A model that gives nothing finite: many aborted steps in a row, and the end."""
    model = poisoned(7, float("nan"), "all")
    prompts = [{"tokens": [7, n]} for n in range(20)]
    for mesh in ({"pipeline": 1}, {"data": 2, "pipeline": 2}):
        name = "every prompt fails, %d ranks" % running.world(mesh)
        result = run(model, mesh, prompts)
        expecting.failure(tally, name, result, "model", r"20 of 20 prompts failed", within=30)
        tally.check([o["finish"] for o in result.objects()] == ["error"] * 20, name + ": each says so", result.summary())


def test_text():
    """Without --json: the text of the others, and one line each on standard error."""
    model = poisoned(PROMPTS[3]["tokens"][1], float("nan"), "text")
    with tempfile.TemporaryDirectory() as place:
        keys = {"model": model, "prompts": PROMPTS[1:5], "max_new_tokens": NEW, "ignore_eos": True}
        result = running.mpirun(2, ["run", running.write_topology(place, "text", {"pipeline": 2}, keys)], timeout=60)
    expecting.failure(tally, "as text", result, "model", r"warning: prompt 2, token 0: .*; the other prompts go on",
                      within=30)
    tally.check(all("[%d] " % n in result.out for n in range(4)), "as text: every prompt has its heading", result.summary())


def test_more_best_logits_than_there_are():
    """--top-logits 64 of a vocabulary of 40."""
    def cut(tensors):
        kind, shape, data = tensors["model.embed_tokens.weight"]
        tensors["model.embed_tokens.weight"] = (kind, [40, shape[1]], data[:40 * len(data) // shape[0]])

    small = Folder(LLAMA, folder, "small").tensors(cut).config(vocab_size=40).path
    for mesh in ({"pipeline": 1}, {"pipeline": 2}):
        result = run(small, mesh, [{"tokens": [1, 2, 3]}], arguments=["--top-logits", "64"])
        name = "more best logits than tokens, %d ranks" % running.world(mesh)
        if expecting.success(tally, name, result):
            steps = result.objects()[0]["top_logits"]
            tally.check(len(steps) == NEW and all(sorted(i for i, _ in best) == list(range(40)) for best in steps),
                        name + ": each token once", result.summary())


if __name__ == "__main__":
    test_more_best_logits_than_there_are()
    test_failed_prompts()
    test_every_prompt_fails()
    test_text()
    tally.finish()
