"""What `ferry plan` and `ferry inspect` can say about a model and its prompts without running it.

Standard library only; starts the built program, never mpirun.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running
from model_files import Folder

LLAMA = os.path.join(running.TINY, "llama")
tally = running.Tally()
folder = running.scratch("offline")


def ferry(*arguments):
    # Leaks are not looked for where Open MPI runs: it has its own.
    extra = {"ASAN_OPTIONS": "detect_leaks=0"} if arguments[0] == "run" else None
    done = subprocess.run([running.FERRY, *arguments], capture_output=True, text=True, timeout=60 * running.PATIENCE,
                          env=running.environment(extra))
    return running.Result(done.returncode, done.stdout, done.stderr)


def plan(model, *arguments, mesh=None, **keys):
    if "prompts_file" not in keys:
        keys.setdefault("prompts", ["hello"])
    path = running.write_topology(folder, "test", mesh or {"pipeline": 1}, {"model": model, "max_new_tokens": 4, **keys})
    return ferry("plan", path, *arguments)


def expect(name, result, code, says, absent=()):
    words = result.out + result.err
    tally.check(result.code == code and all(s in words for s in says) and not any(s in words for s in absent), name,
                result.summary())


PROMPT_LINES = {
    '{"text": "a", "max_new_tokens": 3}': 'unknown key "max_new_tokens": expected one of "text", "messages"',
    '{"\\u001b[31m": 3}': 'unknown key "?[31m"',
    '{"text": "a", "tokens": [5]}': 'both "text" and "tokens": expected one of',
    "{}": "an empty object",
    '{"deadline": "2s"}': 'no prompt: expected one of "text", "messages" and "tokens"',
    '{"text": "a", "deadline": 2}': '"deadline" must be a text',
    '{"text": "a", "deadline": "2"}': '"deadline" is "2": expected a time such as 500ms or 30s, at most 7d',
    '{"text": "a", "deadline": "8d"}': '"deadline" is "8d": expected a time',
    '{"text": "a", "deadline": "-1s"}': '"deadline" is "-1s": expected a time',
    '{"text": 5}': '"text" must be a text',
    '{"tokens": 5}': '"tokens" must be a list',
    '{"tokens": [5,-1]}': "tokens[1] is -1: expected a token id",
    '{"tokens": [5, 6, "\\u001b"]}': 'tokens[2] is "\\u001B": expected a token id',
    '{"tokens": [4294967296]}': "tokens[0] is 4294967296: expected a token id",
    '{"messages": []}': '"messages" must be a list of 1 to',
    '{"messages": [{"role": "user"}]}': "messages[0] needs the texts role and content",
    '{"messages": [{"role": "user", "content": "a", "name": "b"}]}':
        'messages[0]: unknown key "name": expected "role" and "content"',
    '{"messages": [{"role": "user", "content": "a\\u0000"}]}':
        'messages[0]: "content": expected a text without a NUL character',
    '{"text": "a\\u0000b"}': '"text": expected a text without a NUL character',
    "a\x00b": "column 2: expected a text without a NUL character",
    '{"text": "\x1b[31m"}': "column ",
}


def broken_tokenizers():
    """The run would end with it: the plan does, and inspect says it beside the rest."""
    def rewrite(change):
        def apply(path):
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            change(content)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)
        return apply

    def cut(path):
        os.truncate(path, 3000)

    cases = {"cut": (cut, "not valid JSON"),
             "word-piece": (rewrite(lambda t: t["model"].update(type="WordPiece")), "WordPiece"),
             "no-model": (rewrite(lambda t: t.pop("model")), "model")}
    for name, (damage, word) in cases.items():
        copy = Folder(LLAMA, folder, "tokenizer-" + name)
        damage(copy.file("tokenizer.json"))
        expect("plan refuses a tokenizer: " + name, plan(copy.path), 4, ["ferry: error: ", "tokenizer.json", word])
        result = ferry("inspect", copy.path)
        expect("inspect shows a tokenizer: " + name, result, 0, ["tokenizer     cannot be used: ", word, "lm_head.weight"])
        first = json.loads(ferry("inspect", copy.path, "--json").out.splitlines()[0])
        tally.check(word in first["tokenizer"]["fault"], "inspect --json has it: " + name, first)
    gone = Folder(LLAMA, folder, "tokenizer-gone").remove("tokenizer.json").path
    expect("plan misses a tokenizer beside weights", plan(gone), 4, ["has no tokenizer.json"])
    expect("inspect misses it", ferry("inspect", gone), 0, ["tokenizer     none here"])
    bare = Folder(LLAMA, folder, "bare").remove("tokenizer.json", "model.safetensors").path
    expect("config.json alone is planned with", plan(bare), 0, ["the prompts' tokens, the tokenizer (it is not here)"])


def prompts():
    """Encoded before any node is allocated."""
    expect("prompts are counted", plan(LLAMA, prompts=["hello", {"tokens": [1]}]), 0, ["2 prompts of 1 to 4 tokens"])
    expect("a prompt that is too long", plan(LLAMA, prompts=["a", "ferry " * 200]), 4, ["prompt 1 has ", "the context 128"])
    expect("a prompt that gives no token", plan(LLAMA, prompts=[""]), 4, ["prompt 0 is empty"])
    lines = os.path.join(folder, "lines.txt")
    with open(lines, "w", encoding="utf-8") as file:
        file.write("hello\n\n   \t \n\t\r\n  a \n \n")
    expect("blank lines are no prompts", plan(LLAMA, prompts_file=lines), 0, ["2 prompts of "])
    with open(lines, "w", encoding="utf-8") as file:
        file.write("  \n\t\n")
    expect("a file of blank lines", plan(LLAMA, prompts_file=lines), 4, ["holds no prompt"])
    with open(lines, "w", encoding="utf-8") as file:
        file.write('{"text": "  "}\n')
    expect("spaces on purpose", plan(LLAMA, prompts_file=lines), 0, ["1 prompt of "])
    with open(lines, "w", encoding="utf-8") as file:
        file.write('  {"tokens":[5]}\n\t{"tokens": [5, 6]} \n')
    expect("JSON behind blanks", plan(LLAMA, prompts_file=lines), 0, ["2 prompts of 1 to 2 tokens"])
    for line, says in PROMPT_LINES.items():
        with open(lines, "w", encoding="utf-8") as file:
            file.write("hello\n" + line + "\n")
        expect("a line %r" % line, plan(LLAMA, prompts_file=lines), 4, ["lines.txt:2: " + says], ["\x1b", "JSON_"])
    expect("standard input is left alone", plan(LLAMA, prompts_file="-"), 0, ["the prompts (they come from standard input)"])
    expect("a file that is elsewhere", plan(LLAMA, prompts_file="nowhere.txt"), 0, ["the prompts (there is no %s/nowhere.txt)" % folder])


def context_of_one():
    one = Folder(LLAMA, folder, "one").config(max_position_embeddings=1).path
    for name, result in (("plan", plan(one)),
                         ("run", ferry("run", running.write_topology(folder, "one", {"pipeline": 1},
                                                                     {"model": one, "prompts": ["a"]})))):
        expect("a context of one position: " + name, result, 4,
               [one + ": the model has a context of 1 position", "need 2"], absent=["2 to 1"])


def saved_descriptions():
    """The output of inspect --json in place of the model: the same plan, byte for byte but for what is not here."""
    for model in ("llama", "llama-9-heads", "llama-bias", "llama-tied", "llama-shards", "mistral", "qwen2", "qwen3",
                  "llama-k.gguf", "qwen3.gguf"):
        path = os.path.join(running.TINY, model)
        saved = os.path.join(folder, model + ".json")
        with open(saved, "w", encoding="utf-8") as file:
            file.write(ferry("inspect", path, "--json").out)

        def lines(*arguments):
            stages = 1 if model == "llama-k.gguf" else 2
            result = plan(path, "--json", *arguments, mesh={"pipeline": stages})
            objects = [json.loads(line) for line in result.out.splitlines()]
            for o in objects:
                o.pop("notes", None)
            return result.code, objects

        code, real = lines()
        saved_code, described = lines("--model", saved)
        tally.check(code == saved_code == 0 and len(real) > 3 and real == described, model + ": the same plan",
                    "%s\n%s\n%s\n%s" % (code, saved_code, real, described))
        expect(model + ": and it says what it did not see", plan(path, "--model", saved), 0,
               ["the model's files (their saved description stands for them)"])
    saved = os.path.join(folder, "llama.json")
    expect("a description cannot be run", ferry("run", running.write_topology(
        folder, "saved", {"pipeline": 1}, {"model": saved, "prompts": ["a"]})), 4, ["it can be planned with, not run"])
    with open(saved, encoding="utf-8") as file:
        good = file.read().splitlines()
    broken = {"cut": (good[:-1], "announced"), "not JSON": (good[:3] + [good[3][:-5]], ":4"),
              "turned": (good[1:], "expected 'checkpoint'"),
              "no sizes": ([good[0].replace('"heads"', '"hats"')] + good[1:], "heads"),
              "foreign": ([good[0].replace('"family":"llama"', '"family":"bert"')] + good[1:], "bert"),
              "resized": ([good[0], good[1].replace('"bytes":', '"bytes":1')] + good[2:], "of this shape has")}
    for name, (changed, word) in broken.items():
        path = os.path.join(folder, "broken.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(changed) + "\n")
        result = plan(LLAMA, "--model", path)
        tally.check(result.code == 4 and word in result.err and path in result.err, "a description is refused: " + name,
                    result.summary())


if __name__ == "__main__":
    broken_tokenizers()
    prompts()
    context_of_one()
    saved_descriptions()
    tally.finish()
