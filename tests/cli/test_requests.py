"""One prompt that gives no finite result ends alone: its step is aborted everywhere, and the others keep their bits.

The models are copies with one row of the embedding that is not a number (or infinite): a prompt fails when it holds that
token, or at the token behind the one where it was generated.
"""

import concurrent.futures
import glob
import json
import os
import re
import struct
import tempfile

import expecting
from expecting import running
from model_files import Folder

LLAMA = os.path.join(running.TINY, "llama-5-layers")
NEW = 6
PROMPTS = [{"tokens": [(11 * i + 5 * n) % 90 for i in range(length)]} for n, length in enumerate((4, 1, 9, 2, 3, 7, 5))]
MESHES = [{"pipeline": 1}, {"pipeline": 2}, {"tensor": 2}, {"data": 2}, {"pipeline": 3}, {"data": 2, "pipeline": 2}]
folder = running.scratch("requests")
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


def test_deadlines():
    """A deadline of its own in the prompts file, one of all in the topology; rank 0 is held up for longer than either."""
    reference = run(LLAMA, {"pipeline": 1}).objects()
    held = ["--fault", "rank=0,op=10,kind=delay:600ms"]
    cut = {1, 4}
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "prompts.jsonl")
        with open(path, "w", encoding="utf-8") as out:
            for number, prompt in enumerate(PROMPTS):
                own = {"deadline": "300ms"} if number in cut else {"deadline": "1h"} if number == 2 else {}
                out.write(json.dumps({**prompt, **own}) + "\n")
        for mesh in MESHES[1:]:
            name = "deadlines, " + " ".join("%s %d" % pair for pair in mesh.items())
            keys = {"model": LLAMA, "prompts_file": path, "max_new_tokens": NEW, "ignore_eos": True, "microbatch": 1,
                    "prompt_chunk": 4}
            result = running.generate(mesh, keys, ["--logits-digest"] + held, timeout=60, compute={"pieces": 2})
            if not expecting.success(tally, name, result):
                continue
            objects = sorted(result.objects(), key=lambda o: o["prompt"])
            check_others(name, objects, reference, cut)
            tally.check([o["finish"] == "deadline" for o in objects] == [n in cut for n in range(len(PROMPTS))] and
                        all(o["tokens"] == reference[n]["tokens"][:len(o["tokens"])] and len(o["tokens"]) < NEW
                            for n, o in enumerate(objects) if n in cut),
                        name + ": only those end early, with what they had made", result.summary())
    result = running.generate({"pipeline": 2}, {"model": LLAMA, "prompts": PROMPTS, "max_new_tokens": NEW,
                                                "ignore_eos": True, "microbatch": 1, "deadline": "300ms"}, held,
                              timeout=60)
    tally.check(result.code == 0 and {o["finish"] for o in result.objects()} <= {"deadline", "length"} and
                "deadline" in {o["finish"] for o in result.objects()} and len(result.objects()) == len(PROMPTS),
                "a deadline of all", result.summary())


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


# ---- failures that end the run: what each rank then knows of its last steps ---------------------------

PHASE = re.compile(r"step (\d+) is (committed|aborted|indeterminate|unknown), "
                   r"step (\d+) is (committed|aborted|indeterminate|unknown)")


def fail_at(operation, reference):
    """Rank 1 comes late to one operation and then has no memory for it, so that rank 0 is ahead as far as it can be.
    Returns the states that were seen."""
    name = "rank 1 fails at operation %d" % operation
    with tempfile.TemporaryDirectory() as place:
        keys = {"model": LLAMA, "prompts": PROMPTS, "max_new_tokens": NEW, "ignore_eos": True, "microbatch": 4}
        path = running.write_topology(place, "epochs", {"pipeline": 2}, keys, run_dir="runs", compute={"pieces": 2})
        faults = ["--fault", "rank=1,op=%d,kind=delay:200ms" % operation, "--fault",
                  "rank=1,op=%d,kind=oom" % operation]
        result = running.mpirun(2, ["run", path, "--json", "--logits-digest"] + faults, timeout=60)
        wrong = [] if 1 <= result.code <= 125 and not result.left else ["exit code, or processes left"]
        known = {}
        for run_dir in glob.glob(os.path.join(place, "runs", "*")):
            report = running.execute([running.FERRY, "doctor", run_dir, "--json"], timeout=30)
            for line in report.out.splitlines():
                o = json.loads(line)
                found = PHASE.search(o.get("phase") or "")
                if found and "rank" in o:
                    known[o["rank"]] = {int(found[1]): found[2], int(found[3]): found[4]}
        if sorted(known) != [0, 1]:
            wrong.append("states of ranks %s are known" % sorted(known))
        for step in set(known.get(0, {})) & set(known.get(1, {})):
            pair = {known[0][step], known[1][step]}
            if pair >= {"committed", "aborted"}:
                wrong.append("step %d is both committed and aborted" % step)
        for o in result.objects():
            if o["logits_digest"] != reference[o["prompt"]]["logits_digest"]:
                wrong.append("prompt %d was handed out wrong" % o["prompt"])
        tally.check(not wrong, name, "%s\n%s\n%s" % (wrong, known, result.summary()))
        return [state for states in known.values() for state in states.values()]


def test_steps_end_in_one_of_three_ways():
    reference = run(LLAMA, {"pipeline": 1}).objects()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        seen = [state for states in pool.map(lambda o: fail_at(o, reference), range(10, 22)) for state in states]
    for state in ("committed", "aborted", "indeterminate"):
        tally.check(state in seen, "a rank ends with a step that is " + state, seen)


# ---- sizes that change from step to step --------------------------------------------------------------


def test_sizes_that_change():
    """B167: prompts of 128, 129 and 5 tokens one after the other through the same buffers.  B168: eight requests in
    micro-batches of three."""
    long = [{"tokens": [(7 * i + n) % 2000 for i in range(length)]} for n, length in enumerate((128, 129, 5))]
    many = [{"tokens": [(7 * i + 3 * n) % 90 for i in range(2 + n)]} for n in range(8)]
    for name, model, prompts, microbatch in (("B167 lengths 128, 129, 5", running.KJV, long, 1),
                                             ("B168 micro-batches of 3, 3, 2", LLAMA, many, 3)):
        alone = run(model, {"pipeline": 1}, prompts, microbatch)
        for mesh in ({"pipeline": 2}, {"pipeline": 3}):
            result = run(model, mesh, prompts, microbatch)
            if expecting.success(tally, "%s, %d stages" % (name, mesh["pipeline"]), result):
                tally.check([o["logits_digest"] for o in result.objects()] ==
                            [o["logits_digest"] for o in alone.objects()] and alone.code == 0,
                            "%s, %d stages: the same bits as one stage" % (name, mesh["pipeline"]), result.summary())


if __name__ == "__main__":
    test_sizes_that_change()
    test_steps_end_in_one_of_three_ways()
    test_more_best_logits_than_there_are()
    test_failed_prompts()
    test_every_prompt_fails()
    test_text()
    test_deadlines()
    tally.finish()
