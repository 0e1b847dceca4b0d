"""Ferry's generation against golden values that transformers computed in float64.

usage: test_parity.py GOLDEN.json...      One rank; meshes are compared by digests elsewhere.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running

TOLERANCE = 1e-4
MARGIN = 0.002


def prompt_of(case):
    if "text" in case:
        return case["text"]
    return {"messages": case["messages"]} if "messages" in case else {"tokens": case["prompt_tokens"]}


def compare(case, got):
    """None, or what differs."""
    if got["prompt_tokens"] != case["prompt_tokens"]:
        return "prompt tokens %s, expected %s" % (got["prompt_tokens"], case["prompt_tokens"])
    worst = 0.0
    for step, token in enumerate(case["tokens"]):
        if step >= len(got["tokens"]):
            return "only %d tokens, expected %d" % (len(got["tokens"]), len(case["tokens"]))
        mine = dict((i, x) for i, x in got["top_logits"][step])
        for index, logit in case["top_logits"][step]:
            if index in mine:
                worst = max(worst, abs(mine[index] - logit))
        best = case["top_logits"][step][0]
        if best[0] not in mine:
            return "step %d: token %d is not among the best" % (step, best[0])
        if worst > TOLERANCE:
            return "step %d: a logit is off by %.2e" % (step, worst)
        if case["margins"][step] < MARGIN:
            return None
        if got["tokens"][step] != token:
            return "step %d: token %d, expected %d" % (step, got["tokens"][step], token)
    if len(got["tokens"]) != len(case["tokens"]):
        return "%d tokens, expected %d" % (len(got["tokens"]), len(case["tokens"]))
    if "finish" in case and got["finish"] != case["finish"]:
        return "finish %s, expected %s" % (got["finish"], case["finish"])
    return None


def run(path, tally):
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path, encoding="utf-8") as file:
        golden = json.load(file)
    model = os.path.join(running.ROOT, golden["model"])
    if not os.path.exists(model):
        tally.skip(name, "%s is not there: examples/smollm2/get-model" % golden["model"])
        return
    keys = {"model": model, "prompts": [prompt_of(case) for case in golden["prompts"]],
            "max_new_tokens": golden["max_new_tokens"], "ignore_eos": golden["ignore_eos"]}
    result = running.generate(None, keys, ["--top-logits", "8"], text="", world=1)
    if not tally.check(result.code == 0, name + " runs", result.err):
        return
    objects = result.objects()
    tally.check(len(objects) == len(golden["prompts"]), name + " answers every prompt", result.err)
    for number, (case, got) in enumerate(zip(golden["prompts"], objects)):
        difference = compare(case, got)
        tally.check(difference is None, "%s prompt %d" % (name, number), difference)


tally = running.Tally()
for golden in sys.argv[1:]:
    run(golden, tally)
tally.finish()
