"""Mistakes of a user: each is answered within 10 s, with its exit code, once, and nothing is left running."""

import concurrent.futures
import json
import os
import re
import shutil
import sys
import tempfile

import expecting
from expecting import running
from model_files import Folder, byte_alphabet, write_safetensors

LLAMA = os.path.join(running.TINY, "llama")
SHARDS = os.path.join(running.TINY, "llama-shards")
TEXT = "there is "
tally = running.Tally()


def keys(model=LLAMA, **more):
    return {"model": model, "prompts": [TEXT], "max_new_tokens": 4, **more}


class Case:
    """A folder for one case, with what it writes and runs there."""

    def __init__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="ferry-mistakes-")
        self.folder = self.scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content)
        return self.path(name)

    def topology(self, mesh=None, generate=None, name="case", **sections):
        if not mesh and "world" not in sections:
            sections["world"] = 1
        return running.write_topology(self.folder, name, mesh, generate or keys(), **sections)

    def model(self, source=LLAMA, name="model"):
        return Folder(source, self.folder, name)

    def run(self, mesh=None, generate=None, arguments=(), ranks=None, stdin=None, **sections):
        path = self.topology(mesh, generate, **sections)
        return running.mpirun(ranks or running.world(mesh), ["run", path, "--json"] + list(arguments), stdin=stdin,
                              timeout=40)

    def shell(self, ranks, script, **options):
        """Every rank runs this sh script; $FERRY is the program, $RANK its rank."""
        program = 'FERRY="%s"; RANK="${OMPI_COMM_WORLD_RANK:-0}"\n%s' % (running.FERRY, script)
        return running.execute(running.mpirun_command(ranks, ["-c", program], program=["sh"]), cwd=self.folder, timeout=40,
                               **options)


def ferry(*arguments, **options):
    return running.execute([running.FERRY] + list(arguments), timeout=40, **options)


# ---- numbers of processes ------------------------------------------------------------------------------


def test_world_size():  # B17
    for mesh, ranks in (({"pipeline": 2, "tensor": 2}, 2), ({"pipeline": 2}, 4)):
        result = Case().run(mesh, ranks=ranks)
        size = running.world(mesh)
        expecting.failure(tally, "B17 world %d with -n %d" % (size, ranks), result, "topology", r"\b%d ranks" % size,
                          r"\b%d processes" % ranks, r"mpirun -n %d %s run \S+case.yaml\n" % (size, running.FERRY))
    case = Case()
    result = ferry("run", case.topology({"pipeline": 2}), "--set", "run_dir=my runs")
    expecting.failure(tally, "B17 without mpirun", result, "topology", r"\b2 ranks", r"\b1 process\b",
                      r"mpirun -n 2 %s run \S+case.yaml --set 'run_dir=my runs'\n" % running.FERRY)


def test_alone():
    """One rank needs no mpirun, but the plugin."""
    case = Case()
    path = case.topology(None, keys())
    result = ferry("run", path, "--json")
    if expecting.success(tally, "one rank without mpirun", result):
        under = running.mpirun(1, ["run", path, "--json"], timeout=40)
        tally.check(under.code == 0 and under.objects()[0]["tokens"] == result.objects()[0]["tokens"],
                    "the same as with mpirun", under.summary())
    blind = {"extra_env": {"PATH": "/nonexistent"}}  # Open MPI finds no remote shell, and ends the process
    result = ferry("run", path, "--json", **blind)
    expecting.failure(tally, "MPI that does not start", result, "environment", r"MPI ended this process while it started")
    result = ferry("run", case.path("nowhere.yaml"), **blind)
    expecting.failure(tally, "nor tells of a mistake", result, "storage", r"nowhere\.yaml: No such file.*; besides, MPI ended")
    lonely = shutil.copy(running.FERRY, case.path("ferry"))
    result = running.execute([lonely, "run", path], timeout=40)
    expecting.failure(tally, "the MPI plugin is not there", result, "environment", r"ferry-mpi\.so", case.folder)


# ---- checkpoints ---------------------------------------------------------------------------------------


def test_missing_checkpoint():
    case = Case()
    result = case.run({"pipeline": 2}, keys(case.path("nowhere")), ["--set", "run_dir=" + case.path("runs")])
    expecting.failure(tally, "a checkpoint that is not there", result, ["storage", "model"],
                      r"workload\.generate\.model \(line \d+\): \S*nowhere: No such file", r"expected a folder with config\.json")
    page = ferry("doctor", case.path("runs"))
    tally.check(page.code == 0 and "verdict    failed: storage, exit code 9" in page.out and
                re.search(r"^cause +workload\.generate\.model \(line \d+\): \S*nowhere: No such file", page.out, re.M),
                "the doctor tells of a start that was refused", page.summary())
    result = case.run({"pipeline": 2}, keys(case.folder))
    expecting.failure(tally, "a folder without a model", result, ["storage", "model"], r"config\.json")
    folder = case.model().remove("model.safetensors")
    result = case.run({"pipeline": 2}, keys(folder.path))
    expecting.failure(tally, "a folder without weights", result, "model", r"%s.*no weights" % folder.path)


def test_cut_shard():  # B91
    for name, keep in (("its last byte", -1), ("half of its data", -14000)):
        case = Case()
        folder = case.model(SHARDS)
        file = "model-00002-of-00003.safetensors"
        size = os.path.getsize(folder.file(file))
        folder.cut(file, max(size + keep, size // 2) if keep < -1 else keep)
        result = case.run({"pipeline": 2}, keys(folder.path))
        expecting.failure(tally, "B91 a shard without %s" % name, result, "model", file,
                          r"\b%d\b" % os.path.getsize(folder.file(file)), r"model\.layers\.\d+\.")
        tally.check(not result.out, "B91 nothing was printed before (%s)" % name, result.summary())


def test_missing_shard():  # B104
    case = Case()
    folder = case.model(SHARDS).remove("model-00003-of-00003.safetensors")
    result = case.run({"pipeline": 2}, keys(folder.path, layers=[1, 2]))
    expecting.failure(tally, "B104 a shard is missing that only rank 1 needs", result, "model",
                      r"model-00003-of-00003\.safetensors")
    tally.check(not result.out, "B104 nothing was printed before", result.summary())


def test_wrong_shape():  # B112
    name = "model.layers.1.mlp.gate_proj.weight"

    def transpose(tensors):
        dtype, shape, data = tensors[name]
        tensors[name] = (dtype, shape[::-1], data)

    case = Case()
    folder = case.model().tensors(transpose)
    result = case.run({"pipeline": 2}, keys(folder.path))
    expecting.failure(tally, "B112 a transposed weight of rank 1's layer", result, "model",
                      name.replace(".", r"\."), r"\[24, 48\]", r"expected.*\[48, 24\]")
    case = Case()
    folder = case.model().config(intermediate_size=40)
    result = case.run({"tensor": 2}, keys(folder.path))
    expecting.failure(tally, "B112 all weights are of another size", result, "model", r"mlp\.\w+_proj\.weight",
                      r"\b48\b", r"expected.*\b40\b")


def test_lacking_tensor():
    case = Case()
    folder = case.model().tensors(lambda tensors: {k: v for k, v in tensors.items() if k != "model.norm.weight"})
    result = case.run({"pipeline": 2}, keys(folder.path))
    expecting.failure(tally, "a weight is missing", result, "model", r"model\.norm\.weight", r"missing")


def test_architecture():
    case = Case()
    folder = case.model().config(architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox")
    result = case.run({"pipeline": 2}, keys(folder.path))
    expecting.failure(tally, "an unknown architecture", result, "model", r"GPTNeoXForCausalLM", r"LlamaForCausalLM",
                      r"Qwen2ForCausalLM")


def test_rope():  # B146
    for block in ({"type": "yarn", "factor": 4.0}, {"rope_type": "foo", "factor": 4.0}):
        case = Case()
        folder = case.model().config(rope_scaling=block)
        result = case.run(None, keys(folder.path))
        expecting.failure(tally, "B146 rope scaling %s" % json.dumps(block), result, "model",
                          r"'%s'" % list(block.values())[0], r"llama3")


def test_simd():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        if "avx512f" in file.read():
            return  # nothing to refuse here
    case = Case()
    result = case.run({"pipeline": 2}, keys(running.KJV), compute={"simd": "avx512"})
    expecting.failure(tally, "SIMD that the processor lacks", result, "environment", r"compute\.simd", r"avx512", r"auto")


def test_tokenizer():
    case = Case()
    folder = case.model().remove("tokenizer.json")
    result = case.run({"pipeline": 2}, keys(folder.path))
    expecting.failure(tally, "no tokenizer", result, "model", r"%s.*tokenizer\.json" % folder.path, r"rank 0")
    case = Case()
    folder = case.model().cut("tokenizer.json", 1000)
    result = case.run({"pipeline": 2}, keys(folder.path))
    expecting.failure(tally, "a cut tokenizer", result, "model", r"tokenizer\.json")


# ---- what the model cannot be cut into -----------------------------------------------------------------


def test_layers():  # B143
    case = Case()
    result = case.run({"pipeline": 4}, keys())
    expecting.failure(tally, "B143 more stages than layers", result, "topology", r"case\.yaml:\d+:\d+",
                      r"\b4 stages", r"\b2 layers", r"at most 2")
    result = case.run({"pipeline": 2}, keys(layers=[2, 1]))
    expecting.failure(tally, "B143 layers that do not add up", result, "topology", r"case\.yaml:\d+:\d+", r"\b3\b",
                      r"\b2 layers")


def test_heads():  # B139
    odd = os.path.join(running.TINY, "llama-odd")  # 6 query heads, 3 key/value heads
    result = Case().run({"tensor": 8}, keys(odd, prompts=[{"tokens": [5, 7]}]))
    expecting.failure(tally, "B139 more ranks than heads", result, "topology", r"case\.yaml:\d+:\d+", r"tensor 8",
                      r"query heads 6", r"key/value heads 3", r"1 to 6")
    case = Case()
    folder = case.model(odd).config(num_key_value_heads=4)
    result = case.run({"tensor": 2}, keys(folder.path, prompts=[{"tokens": [5, 7]}]))
    expecting.failure(tally, "B139 heads that are no multiple of key/value heads", result, "model", r"\b6\b", r"\b4\b")
    gguf = os.path.join(running.TINY, "llama-k.gguf")
    result = Case().run({"tensor": 4}, keys(gguf))
    if result.code:
        expecting.failure(tally, "B139 blocks of 256 leave fewer pieces than ranks", result, "topology",
                          r"case\.yaml:\d+:\d+", r"units of \d+", r"possible|cannot be cut at all")
    result = Case().run({"tensor": 4}, keys(), compute={"pieces": 2})
    expecting.failure(tally, "fewer pieces than ranks", result, "topology", r"case\.yaml:\d+:\d+", r"2 pieces",
                      r"tensor size 4")


# ---- prompts -------------------------------------------------------------------------------------------


def test_context():  # B153
    def prompt(length):
        return {"tokens": [20 + i for i in range(length)]}

    result = Case().run({"pipeline": 2}, keys(context=32, prompts=[prompt(33)]))
    expecting.failure(tally, "B153 a prompt longer than the context", result, ["model", "topology"], r"\b33\b",
                      r"\b32\b")
    result = Case().run({"pipeline": 2}, keys(context=32, prompts=[prompt(32)]))
    expecting.failure(tally, "B153 a prompt exactly as long as the context", result, ["model", "topology"],
                      r"\b32\b", r"at most 31")
    result = Case().run({"pipeline": 2}, keys(context=32, prompts=[prompt(5), prompt(40), prompt(6)]))
    expecting.failure(tally, "B153 one of three prompts is too long", result, ["model", "topology"],
                      r"prompts?[ \[]1\b", r"\b40\b", r"\b32\b")
    tally.check(not result.out, "B153 the others are not begun", result.summary())
    result = Case().run({"pipeline": 2}, keys(context=32, prompts=[prompt(30)], max_new_tokens=10, ignore_eos=True))
    if expecting.success(tally, "B153 a prompt of 30 and 10 new tokens", result):
        got = result.objects()[0]
        tally.check(len(got["tokens"]) == 2 and got["finish"] == "length", "B153 stops at the context of 32",
                    result.summary())
        alone = Case().run(None, keys(prompts=[prompt(30)], max_new_tokens=2, ignore_eos=True))
        tally.check(alone.code == 0 and alone.objects()[0]["tokens"] == got["tokens"],
                    "B153 what is generated before is right", alone.summary())
    words = "the other ferry leaves in the morning and "
    result = Case().run({"pipeline": 2}, keys(prompts=[words * 20]))
    expecting.failure(tally, "B153 a text longer than the model's own context", result, "model", r"prompt 0",
                      r"\b128\b")


def test_empty_prompts():
    result = Case().run({"pipeline": 2}, keys(prompts=[""]))
    expecting.failure(tally, "an empty prompt", result, ["model", "topology"], r"empty", r"prompts?[ \[]0")
    no_prompts = keys()
    del no_prompts["prompts"]
    result = Case().run({"pipeline": 2}, no_prompts)
    expecting.failure(tally, "no prompts at all", result, "topology", r"workload\.generate \(line \d+\): no prompts")
    result = Case().run(None, keys(prompts=[{"tokens": [5, 304]}]))
    expecting.failure(tally, "a token outside the vocabulary", result, ["model", "topology"], r"\b304\b")
    result = Case().run(None, keys(prompts=[{"messages": [{"role": "user", "content": "hi"}]}]))
    expecting.failure(tally, "a chat for a model without a template", result, "model", r"template", r"prompt 0")


def test_token_zero():
    result = Case().run(None, keys(prompts=[{"tokens": [0, 5]}]))
    if expecting.success(tally, "token 0 is a token", result):
        tally.check(result.objects()[0]["prompt_tokens"] == [0, 5], "token 0 arrives", result.summary())


def prompts_file_keys(name):
    file_keys = keys()
    del file_keys["prompts"]
    return {**file_keys, "prompts_file": name}


def test_prompts_file():
    lines = ["there is ", '{"text": "the ferry"}', '{"tokens": [5, 6, 7]}']
    case = Case()
    case.write("good.txt", "\n".join(lines) + "\n")
    result = case.run({"pipeline": 2}, prompts_file_keys("good.txt"))
    same = Case().run({"pipeline": 2}, keys(prompts=[TEXT, "the ferry", {"tokens": [5, 6, 7]}]))
    if expecting.success(tally, "a prompts file", result) and expecting.success(tally, "the same as prompts", same):
        picked = [[(o["prompt_tokens"], o["tokens"], o["text"]) for o in r.objects()] for r in (result, same)]
        tally.check(picked[0] == picked[1] and len(picked[0]) == 3, "a prompts file says the same as prompts",
                    result.summary() + same.summary())
    piped = case.run({"pipeline": 2}, prompts_file_keys("-"), stdin=("\r\n".join(lines)).encode())
    if expecting.success(tally, "prompts from standard input", piped):
        tally.check([o["tokens"] for o in piped.objects()] == [o["tokens"] for o in same.objects()],
                    "standard input says the same as prompts", piped.summary())
    case.write("marked.txt", "\ufeff" + "\r\n".join(lines))
    marked = case.run({"pipeline": 2}, prompts_file_keys("marked.txt"))
    if expecting.success(tally, "a prompts file with a byte order mark", marked):
        tally.check([o["prompt_tokens"] for o in marked.objects()] == [o["prompt_tokens"] for o in same.objects()],
                    "a byte order mark is no part of a prompt", marked.summary())
    for name, bad, needle in (("broken JSON", '{"text": "x"', r"bad\.txt:2\b"),
                              ("another kind of object", '{"prompt": "x"}', r"bad\.txt:2\b.*\"text\""),
                              ("a token that is a text", '{"tokens": ["x"]}', r"bad\.txt:2\b"),
                              ("an empty text", '{"text": ""}', r"bad\.txt:2\b.*empty")):
        case = Case()
        case.write("bad.txt", "there is \n" + bad + "\nthe end\n")
        result = case.run({"pipeline": 2}, prompts_file_keys("bad.txt"))
        expecting.failure(tally, "a prompts file with %s" % name, result, "model", needle)
    nothing = Case().run({"pipeline": 2}, prompts_file_keys("-"), stdin=b"")
    expecting.failure(tally, "an empty standard input", nothing, "model", r"standard input holds no prompt")
    result = Case().run({"pipeline": 2}, prompts_file_keys("nowhere.txt"))
    expecting.failure(tally, "a prompts file that is not there", result, "storage", r"nowhere\.txt")
    case = Case()
    case.write("empty.txt", "\n\n")
    result = case.run({"pipeline": 2}, prompts_file_keys("empty.txt"))
    expecting.failure(tally, "a prompts file without prompts", result, "model", r"empty\.txt", r"no prompt")


# ---- output --------------------------------------------------------------------------------------------


def test_reader_that_leaves():
    case = Case()
    path = case.topology(generate=keys(prompts=[TEXT] * 300), mesh=None)
    result = ferry("run", path, "--json", cwd=case.folder)
    expecting.success(tally, "300 prompts on one rank", result)
    for name, script in (("goes away", '{ "$0" run "%s" --json; echo "code $?" >&2; } | head -c 10'),
                         ("never was, nor any other stream", '"$0" run "%s" --json <&- >&- 2>&-; echo "code $?"')):
        result = running.execute(["sh", "-c", script % path, running.FERRY], timeout=40, cwd=case.folder)
        tally.check("code 9" in result.out + result.err, "a reader that %s" % name, result.summary())
        tally.check(not result.left and "SIGPIPE" not in result.err, "a reader that %s kills nobody" % name,
                    result.summary())


def test_unwritable_output():
    for option in ("", "--json"):
        case = Case()
        path = case.topology({"pipeline": 2}, keys(max_new_tokens=40, ignore_eos=True))
        result = case.shell(2, 'exec "$FERRY" run "%s" %s >/dev/full' % (path, option))
        expecting.failure(tally, "standard output is full %s" % option, result, "storage", r"standard output",
                          r"No space left")
    case = Case()
    path = case.topology({"pipeline": 2}, keys())
    result = case.shell(2, 'exec "$FERRY" run "%s" >&-' % path)
    expecting.failure(tally, "standard output is closed", result, "storage", r"standard output")
    for option in ("", "--json"):
        case = Case()
        path = case.topology({"pipeline": 2}, keys(max_new_tokens=40, ignore_eos=True))
        result = case.shell(2, 'mkfifo "pipe.$RANK"; (: <"pipe.$RANK") & exec "$FERRY" run "%s" %s >"pipe.$RANK"' %
                            (path, option))
        expecting.failure(tally, "who reads standard output has gone %s" % option, result, "storage",
                          r"standard output", r"Broken pipe")
    result = Case().run({"pipeline": 2}, keys(), run_dir="/proc/nowhere")
    expecting.failure(tally, "a run folder that cannot be made", result, "storage", r"/proc/nowhere")


def make_speller(case):
    """A model whose every token is followed by the next byte of a text with characters of 2 and 4 bytes: all layers
    add nothing, the embedding of a token is the axis of its place in the text, and the head turns each axis into the
    token of the next place."""
    import struct
    folder = case.model(LLAMA)
    with open(folder.file("tokenizer.json"), encoding="utf-8") as file:
        vocab = json.load(file)["model"]["vocab"]
    alphabet = byte_alphabet()
    chain = [vocab[alphabet[byte]] for byte in "a\u00e9\U0001f600zb!".encode()]
    hidden = 24

    def spell(tensors):
        for name, (dtype, shape, data) in list(tensors.items()):
            if "_proj" in name:
                tensors[name] = (dtype, shape, bytes(len(data)))
        embed = [[0.0] * hidden for _ in range(304)]
        head = [[0.0] * hidden for _ in range(304)]
        for place, token in enumerate(chain):
            embed[token] = [1.0 if i == place else 0.0 for i in range(hidden)]
            if place:
                head[token][place - 1] += 9.0
        for name, rows in (("model.embed_tokens.weight", embed), ("lm_head.weight", head)):
            flat = [x for row in rows for x in row]
            tensors[name] = ("F32", [304, hidden], struct.pack("<%df" % len(flat), *flat))
        ones = struct.pack("<24f", *[1.0] * hidden)
        tensors["model.norm.weight"] = ("F32", [hidden], ones)

    folder.tensors(spell)
    return folder, chain


def test_streamed_text():  # B151
    case = Case()
    folder, chain = make_speller(case)
    for count in (len(chain) - 1, 4):
        wanted = keys(folder.path, prompts=[{"tokens": chain[:1]}, "t"], max_new_tokens=count, ignore_eos=True)
        written = case.run({"pipeline": 2}, wanted)
        streamed = running.mpirun(2, ["run", case.topology({"pipeline": 2}, wanted), "--quiet"], timeout=40)
        if not expecting.success(tally, "B151 characters of several tokens, --json", written) or \
                not expecting.success(tally, "B151 characters of several tokens, streamed", streamed):
            return
        objects = written.objects()
        text = "[0] a%s\n\n[1] t%s\n" % (objects[0]["text"], objects[1]["text"])
        tally.check(streamed.out == text, "B151 streamed text is the whole text, %d tokens" % count,
                    repr(text) + streamed.summary())
        whole = "\u00e9\U0001f600zb!".encode()[:count].decode(errors="replace")
        if count == len(chain) - 1:
            tally.check(objects[0]["text"] == whole, "B151 no character is broken", repr(whole) + written.summary())
        else:
            tally.check(objects[0]["text"].startswith("\u00e9") and "\ufffd" in objects[0]["text"],
                        "B151 a character that was cut off is marked", written.summary())


# ---- the command line ----------------------------------------------------------------------------------


def test_usage():
    case = Case()  # its folder lasts as long as it does
    path = case.topology({"pipeline": 2}, keys())
    for name, arguments, needles in (
            ("an unknown command", ["ran", path], [r"'?ran'?", r"\brun\b"]),
            ("no command", [], [r"\brun\b"]),
            ("no topology", ["run"], [r"topology"]),
            ("two topologies", ["run", path, path], [r"one topology"]),
            ("an unknown option", ["run", path, "--jsn"], [r"--?jsn"]),
            ("--top-logits without a number", ["run", path, "--top-logits", "many"], [r"--top-logits", r"many"]),
            ("--top-logits too many", ["run", path, "--top-logits", "65"], [r"--top-logits", r"\b64\b"]),
            ("--top-logits without --json", ["run", path, "--top-logits", "3"], [r"--top-logits", r"--json"]),
            ("--logits-digest without --json", ["run", path, "--logits-digest"], [r"--logits-digest", r"--json"]),
            ("--top-logits negative", ["run", path, "--top-logits=-1"], [r"--top-logits", r"-1"]),
            ("--fault of no kind", ["run", path, "--fault", "rank=0,op=1,kind=melt"], [r"--fault", r"melt", r"kill"]),
            ("--fault without a rank", ["run", path, "--fault", "op=1,kind=kill"], [r"--fault", r"rank"]),
            ("--fault with a bad byte", ["run", path, "--fault", "rank=0,op=1,kind=flip:x"], [r"--fault", r"flip"]),
    ):
        result = ferry(*arguments)
        expecting.failure(tally, "usage: %s" % name, result, "usage", *needles, printed=None)
        tally.check(not result.out, "usage: %s says nothing on standard output" % name, result.summary())
    result = running.mpirun(2, ["run", path, "--jsn"], timeout=40)
    expecting.failure(tally, "usage: an unknown option under mpirun", result, "usage", r"--?jsn", printed=None)
    result = ferry("run", path, "--set", "mesh.tensr=2")
    expecting.failure(tally, "--set of an unknown key", result, ["topology", "usage"], r"mesh\.tensr", r"tensor")
    result = running.mpirun(2, ["run", path, "--set", "mesh.pipeline=two"], timeout=40)
    expecting.failure(tally, "--set of a bad value", result, ["topology", "usage"], r"mesh\.pipeline", r"two")
    result = running.mpirun(2, ["run", path, "--fault", "rank=7,op=1,kind=kill"], timeout=40)
    expecting.failure(tally, "a fault of a rank that is not there", result, "usage", r"rank=7", r"0 to 1",
                      absent=[r"ferry: rank", r"usage: rank"])
    result = running.mpirun(2, ["run", path, "--set", "placement.threads=300"], timeout=40)
    expecting.failure(tally, "more threads than a rank can have", result, "topology", r"placement\.threads", r"1\.\.256")
    result = ferry("run", "/nowhere/topology.yaml")
    expecting.failure(tally, "a topology that is not there", result, ["storage", "topology"],
                      r"/nowhere/topology\.yaml")


TAIL = "workload: {generate: {model: %s, prompts: [hi], max_new_tokens: 2}}\n" % LLAMA


def test_topology():
    for name, text, needles in (
            ("B01 a key twice", "ferry: 1\nname: t\nworld: 2\nworld: 4\n" + TAIL, [r":4:1", r"world", r"\b3\b"]),
            ("B06 4294967298 ranks", "ferry: 1\nname: t\nworld: 4294967298\n" + TAIL,
             [r":3:8", r"world", r"4294967298", r"1048576"]),
            ("B06 1e1 ranks", "ferry: 1\nname: t\nworld: 1e1\n" + TAIL, [r":3:8", r"world", r"1e1"]),
            ("B10 a misspelt key", "ferry: 1\nname: t\nmesh: {pipelin: 2}\n" + TAIL,
             [r":3:8", r"pipelin\b", r"\bpipeline\b", r"\^"]),
            ("B18 a member twice", "ferry: 1\nname: t\nmesh: {pipeline: 2}\ngroups:\n  - {name: g, members: [0, 1, 1]}\n"
             + TAIL, [r":5:\d+", r"\bg\b", r"\b1\b"]),
            ("B22 a member out of range", "ferry: 1\nname: t\nmesh: {pipeline: 2}\ngroups:\n"
             "  - {name: g, members: [0, 2]}\n" + TAIL, [r":5:\d+", r"\bg\b", r"\b2\b", r"0\D+1"]),
            ("two mistakes in one run", "ferry: 1\nname: t\nmesh: {pipelin: 2}\nrundir: x\n" + TAIL,
             [r":3:8", r":4:1", r"run_dir"]),
            ("B14 a second document", "ferry: 1\nname: t\nmesh: {pipeline: 2}\n" + TAIL + "---\nferry: 1\n",
             [r":5:1", r"document"]),
            ("B02 a tab", "ferry: 1\nname: t\nmesh:\n\tpipeline: 2\n" + TAIL, [r":4:1", r"[Tt]ab"]),
            ("B15 an empty file", "", [r"empty\.yaml|case\.yaml"]),
    ):
        case = Case()
        path = case.write("case.yaml", text)
        result = running.mpirun(2, ["run", path], timeout=40)
        expecting.failure(tally, "%s, under mpirun" % name, result, "topology", r"case\.yaml", *needles)
    result = Case().run({"expert": 2}, keys())
    expecting.failure(tally, "experts are not built", result, ["topology", "model"], r"mesh\.expert", r"case\.yaml:\d+")
    result = Case().run(None, keys(), compute={"backend": "cuda"})
    expecting.failure(tally, "cuda is not built", result, ["topology", "model"], r"compute\.backend", r"cuda")
    case = Case()
    path = running.write_topology(case.folder, "case", {"pipeline": 2})
    result = running.mpirun(2, ["run", path], timeout=40)
    expecting.failure(tally, "nothing to run", result, "topology", r"workload")
    result = Case().run(None, keys(), launch={"require_env": ["FERRY_NO_SUCH_KEY"]})
    expecting.failure(tally, "B53 a variable that is required", result, "environment", r"FERRY_NO_SUCH_KEY")


# ---- ranks that were told different things -------------------------------------------------------------


def two(case, first, second, env=("", "")):
    """Rank 0 runs the arguments of first, rank 1 those of second."""
    command = [running.MPIRUN, "--oversubscribe"]
    for number, (arguments, variable) in enumerate(zip((first, second), env)):
        command += ([":"] if number else []) + ["-n", "1"] + (["-x", variable] if variable else [])
        command += running.RANK + [running.FERRY] + arguments
    return running.execute(command, timeout=40, cwd=case.folder)


def test_different_topologies():  # B21
    case = Case()
    a = case.topology({"pipeline": 2}, keys(), name="a")
    b = case.topology({"pipeline": 2}, keys(max_new_tokens=5), name="a2")
    os.mkdir(case.path("other"))
    c = shutil.copy(b, case.path("other/a.yaml"))
    with open(c, encoding="utf-8") as file:
        text = file.read().replace('"a2"', '"a"')
    with open(c, "w", encoding="utf-8") as file:
        file.write(text)
    result = two(case, ["run", a], ["run", c])
    expecting.failure(tally, "B21 one field differs", result, "mismatch", r"workload\.generate\.max_new_tokens",
                      r"rank 1", r"\b4\b", r"\b5\b", r"rank 0")
    tally.check(not result.out, "B21 nothing is generated", result.summary())
    result = two(case, ["run", a], ["run", a, "--set", "workload.generate.sampling.seed=9"])
    expecting.failure(tally, "B21 --set differs", result, "mismatch", r"sampling\.seed", r"rank 1")
    result = two(case, ["run", a], ["run", a, "--json", "--top-logits", "3"])
    expecting.failure(tally, "B21 an option that all ranks must share differs", result, "mismatch", r"top-logits",
                      r"rank 1")
    result = two(case, ["run", a], ["run", a], env=("FERRY_X=one", "FERRY_X=two"))
    expecting.failure(tally, "B21 a variable differs", result, "mismatch", r"FERRY_X", r"rank 1", r"one", r"two")
    d = case.topology({"tensor": 2}, keys(), name="b")
    result = two(case, ["run", a], ["run", d])
    expecting.failure(tally, "B21 two different jobs", result, "mismatch", r"mesh\.(pipeline|tensor)", r"rank 1")


def test_one_bad_rank():  # B40, B62
    case = Case()
    path = case.topology({"pipeline": 2}, keys())
    result = case.shell(2, '[ $RANK = 1 ] && exec "$FERRY" run "%s.missing"\nexec "$FERRY" run "%s"' % (path, path))
    expecting.failure(tally, "B40 rank 1 cannot find its topology", result, ["storage", "topology"], r"rank 1",
                      r"case\.yaml\.missing")
    bad = case.write("bad.yaml", "ferry: 1\nname: bad\nmesh: {pipeline: two}\n")
    result = case.shell(2, '[ $RANK = 1 ] && exec "$FERRY" run "%s"\nexec "$FERRY" run "%s"' % (bad, path))
    expecting.failure(tally, "B40 rank 1 has a bad topology", result, "topology", r"rank 1", r"bad\.yaml:3:\d+")
    result = case.shell(2, '[ $RANK = 0 ] && exec "$FERRY" run "%s"\nexec "$FERRY" run "%s"' % (bad, path))
    expecting.failure(tally, "B40 rank 0 has a bad topology", result, "topology", r"rank 0", r"bad\.yaml:3:\d+")
    for hidden in (1, 0):
        case = Case()
        for rank in (0, 1):
            os.mkdir(case.path("host%d" % rank))
            if rank != hidden:
                os.symlink(LLAMA, case.path("host%d/model" % rank))
            running.write_topology(case.path("host%d" % rank), "case", {"pipeline": 2}, keys("model"))
        result = case.shell(2, 'cd host$RANK && exec "$FERRY" run case.yaml')
        expecting.failure(tally, "B62 the model is missing on rank %d only" % hidden, result, ["storage", "model"],
                          r"rank %d" % hidden, r"model", r"No such file")
    case = Case()
    path = case.topology({"pipeline": 2}, keys())
    result = case.shell(2, '[ $RANK = 1 ] && exec "$FERRY" run\nexec "$FERRY" run "%s"' % path)
    expecting.failure(tally, "rank 1 has a bad command line", result, "usage", r"topology", printed=None)
    result = case.shell(2, '[ $RANK = 1 ] && exec /bin/false\nexec "$FERRY" run "%s"' % path)
    tally.check(1 <= result.code <= 125 and result.seconds < 10 and not result.left,
                "rank 1 never becomes ferry", result.summary())


def test_root():  # B49
    if os.getuid():
        tally.skip("B49 root without the two variables", "not root here")
        return
    case = Case()
    path = case.topology({"pipeline": 2}, keys())
    result = running.mpirun(2, ["run", path], timeout=40,
                            extra_env={"OMPI_ALLOW_RUN_AS_ROOT": None, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": None})
    expecting.failure(tally, "B49 root without the two variables", result, "internal", r"allow-run-as-root",
                      r"OMPI_ALLOW_RUN_AS_ROOT", printed=0)


def main():
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    if len(sys.argv) > 1:
        tests = [test for test in tests if any(word in test.__name__ for word in sys.argv[1:])]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(test) for test in tests]:
            done.result()
    tally.finish()


main()
