"""The reference: Hugging Face transformers, made to compute in float64 throughout.

transformers rounds to f32 inside a float64 model in three places (norms, rotary angles, softmax).
exact() replaces the first two, and scaled-dot-product attention has not the third.  What it replaces is
checked against transformers' own f32 values on the way.
"""

import json
import math
import warnings
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

warnings.filterwarnings("ignore", category=FutureWarning)
logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(1)
torch.set_grad_enabled(False)

# The pattern of Llama 3's tokenizer and that of Qwen 2's, as their files spell them.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


# ---- float64 -----------------------------------------------------------------------------------------

def rope_frequencies(config):
    """Rotary frequencies in f64 by the published formulas: plain, or scaled the way of Llama 3."""
    rope = dict(config.rope_parameters)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    i = torch.arange(0, head_dim, 2, dtype=torch.float64)
    freq = rope["rope_theta"] ** (-i / head_dim)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return freq
    assert kind == "llama3", kind
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * freq / (2 * math.pi)  # over the original length
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * freq / factor + smooth * freq


def exact(model, freq_factors=None):
    """Make a float64 model compute in float64 everywhere."""
    assert model.dtype == torch.float64

    def norm_forward(norm):
        def forward(x):
            return norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon))

        return forward

    def rope_forward(freq):
        def forward(x, position_ids, *_, **__):
            angle = position_ids[..., None].double() * freq
            angle = torch.cat((angle, angle), dim=-1)
            return angle.cos(), angle.sin()

        return forward

    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            module.forward = norm_forward(module)
        elif kind.endswith("RotaryEmbedding"):
            freq = rope_frequencies(model.config)
            torch.testing.assert_close(freq.float(), module.inv_freq.float(), rtol=1e-5, atol=0)
            module.forward = rope_forward(freq if freq_factors is None else freq / freq_factors)
    return model.eval()


def greedy(model, prompt, max_new_tokens, stop=(), top=5):
    """Greedy tokens, the margin of the best over the second, and the best logits, for each step."""
    tokens, margins, best = [], [], []
    ids, cache = torch.tensor([prompt]), None
    while len(tokens) < max_new_tokens:
        out = model(input_ids=ids, past_key_values=cache, use_cache=True)
        logits, cache = out.logits[0, -1], out.past_key_values
        assert not torch.is_floating_point(logits) or logits.isfinite().all()
        # Stable: among equals the lowest id wins.
        values, order = logits.sort(descending=True, stable=True)
        tokens.append(order[0].item())
        margins.append((values[0] - values[1]).item())
        best.append(list(zip(order[:top].tolist(), values[:top].tolist())))
        if tokens[-1] in stop:
            break
        ids = torch.tensor([[tokens[-1]]])
    return tokens, margins, best


# ---- Hugging Face folders ----------------------------------------------------------------------------

def load_folder(path, dtype=torch.float64):
    model = AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype, attn_implementation="sdpa")
    return exact(model) if dtype == torch.float64 else model.eval()


def folder_tokenizer(path):
    """The tokenizer itself, and its wrapper that knows the chat template."""
    path = Path(path)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    file = path / "tokenizer_config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    return tokenizer, chat_wrapper(tokenizer, config)


def chat_wrapper(tokenizer, config):
    def text(token):
        return token["content"] if isinstance(token, dict) else token

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=text(config.get("bos_token")),
        eos_token=text(config.get("eos_token")),
        chat_template=config.get("chat_template"),
    )


def folder_stops(path):
    for name in ("generation_config.json", "config.json"):
        file = Path(path) / name
        value = json.loads(file.read_text()).get("eos_token_id") if file.exists() else None
        if value is not None:
            return value if isinstance(value, list) else [value]
    return []


# ---- GGUF --------------------------------------------------------------------------------------------

class Gguf:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(str(path))
        self.fields = {k: f.contents() for k, f in self.reader.fields.items()}
        self.arch = self.fields["general.architecture"]
        self.tensors = {t.name: t for t in self.reader.tensors}

    def get(self, key, default=None):
        return self.fields.get(f"{self.arch}.{key}", default)

    def tensor(self, name):
        """Dequantised by the gguf package: an f32 array, as every type defines its values."""
        t = self.tensors[name]
        return torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32))

    def config(self):
        heads = self.get("attention.head_count")
        hidden = self.get("embedding_length")
        head_dim = self.get("attention.key_length", self.get("rope.dimension_count", hidden // heads))
        extra = {} if self.arch == "qwen2" else {"head_dim": head_dim}
        return AutoConfig.for_model(
            self.arch,
            vocab_size=self.tensors["token_embd.weight"].shape[1].item(),
            hidden_size=hidden,
            intermediate_size=self.get("feed_forward_length"),
            num_hidden_layers=self.get("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=self.get("attention.head_count_kv", heads),
            max_position_embeddings=self.get("context_length"),
            rms_norm_eps=self.get("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": self.get("rope.freq_base", 10000.0)},
            tie_word_embeddings="output.weight" not in self.tensors,
            **extra,
        )

    def stops(self):
        keys = ("eos_token_id", "eot_token_id", "eom_token_id")
        ids = (self.fields.get(f"tokenizer.ggml.{k}") for k in keys)
        return [i for i in ids if i is not None]


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
GGUF_OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    """GGUF's name of one of Hugging Face's parameters."""
    stem, suffix = name.rsplit(".", 1)
    if stem in GGUF_OUTER_NAMES:
        return f"{GGUF_OUTER_NAMES[stem]}.{suffix}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[rest]}.{suffix}"


def pair_rows(rows, heads):
    """Rows of q or k in GGUF's order for `llama`: the two halves of each head interleaved."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def unpair_rows(rows, heads):
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def load_gguf(path, dtype=torch.float64):
    file = Gguf(path)
    config = file.config()
    config._attn_implementation = "sdpa"
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    state = {}
    for name in model.state_dict():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            state[name] = file.tensor("token_embd.weight")
            continue
        value = file.tensor(gguf_name(name))
        if file.arch == "llama" and "q_proj" in name:
            value = unpair_rows(value, config.num_attention_heads)
        if file.arch == "llama" and "k_proj" in name:
            value = unpair_rows(value, config.num_key_value_heads)
        state[name] = value
    model.load_state_dict(state)
    factors = file.tensor("rope_freqs.weight").double() if "rope_freqs.weight" in file.tensors else None
    if dtype == torch.float64:
        return exact(model, factors)
    if factors is not None:
        model.model.rotary_emb.inv_freq /= factors
    return model.eval()


def gguf_tokenizer(path):
    """The tokenizer that the file means: its `pre` names the patterns that its text is cut by."""
    file = Gguf(path)
    fields = {k.removeprefix("tokenizer.ggml."): v for k, v in file.fields.items()}
    tokens, types = fields["tokens"], fields["token_type"]
    byte_level = lambda regex: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    sequence = pre_tokenizers.Sequence
    pre = fields["pre"]
    merges = [tuple(m.split(" ")) for m in fields["merges"]]
    model = models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=pre == "llama-bpe")
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = {
        "gpt-2": lambda: byte_level(True),
        "smollm": lambda: sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
        "llama-bpe": lambda: sequence([split(LLAMA3_PATTERN), byte_level(False)]),
        "qwen2": lambda: sequence([split(QWEN2_PATTERN), byte_level(False)]),
    }[pre]()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    control = [AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == 3]
    user = [AddedToken(t, special=False, normalized=False) for t, k in zip(tokens, types) if k == 4]
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(user)
    name = lambda key: tokens[fields[key]] if key in fields else None
    bos = name("bos_token_id")
    if fields.get("add_bos_token"):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, fields["bos_token_id"])]
        )
    config = {
        "bos_token": bos,
        "eos_token": name("eos_token_id"),
        "chat_template": file.fields.get("tokenizer.chat_template"),
    }
    return tokenizer, chat_wrapper(tokenizer, config)


# ---- either ------------------------------------------------------------------------------------------

def is_gguf(path):
    return Path(path).suffix == ".gguf"


def load_model(path, dtype=torch.float64):
    return load_gguf(path, dtype) if is_gguf(path) else load_folder(path, dtype)


def load_tokenizer(path):
    return gguf_tokenizer(path) if is_gguf(path) else folder_tokenizer(path)


def stop_tokens(path):
    return Gguf(path).stops() if is_gguf(path) else folder_stops(path)


def prompt_tokens(path, prompt):
    """Ids of {"text"}, {"messages"} or {"tokens"}."""
    if "tokens" in prompt:
        return prompt["tokens"]
    tokenizer, wrapper = load_tokenizer(path)
    if "text" in prompt:
        return tokenizer.encode(prompt["text"]).ids
    text = wrapper.apply_chat_template(prompt["messages"], tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False).ids
