#!/usr/bin/env python3
"""Make the reference files in data/ with the packages numpy, gguf and safetensors (tried: 2.4, 0.19, 0.8).

    make_vectors.py DATA_DIR [BLOCKS]

weights.bin            per type: name (8 bytes, padded with NUL), blocks and values as u32, the packed blocks, their f32
                       values by gguf.quants.dequantize.  BLOCKS random blocks a type (default 6) follow the edge blocks.
reference.gguf         metadata of every kind and tensors of several types, by GGUFWriter
reference.safetensors  one tensor of each element type, by safetensors itself
"""
import itertools
import pathlib
import struct
import sys

import gguf
import numpy as np
import safetensors

# Half bits: zeros, one, the largest, a small negative, subnormals, infinities, not-a-numbers.
EDGES = [0x0000, 0x8000, 0x3C00, 0x7BFF, 0xFBFF, 0xA400, 0x0001, 0x83FF, 0x7C00, 0xFC00, 0x7E00, 0xFE01]
# Name: block bytes, offsets of its halves.
TYPES = {
    "F32": (4, []), "F16": (2, [0]), "BF16": (2, []),
    "Q4_0": (18, [0]), "Q4_1": (20, [0, 2]), "Q5_0": (22, [0]), "Q5_1": (24, [0, 2]), "Q8_0": (34, [0]),
    "Q4_K": (144, [0, 2]), "Q5_K": (176, [0, 2]), "Q6_K": (210, [208]),
}


def blocks_of(rng, size, halves, count):
    edges = list(itertools.product(EDGES, repeat=len(halves))) if len(halves) < 2 else \
        [(e, EDGES[(i + 1) % len(EDGES)]) for i, e in enumerate(EDGES)]
    blocks = rng.integers(0, 256, (len(edges) + count, size), dtype=np.uint8)
    for row, values in enumerate(edges):
        for offset, bits in zip(halves, values):
            blocks[row, offset:offset + 2] = list(struct.pack("<H", bits))
    # Random scales of moderate size, so that most values are ordinary.
    for row in range(len(edges), len(blocks)):
        for offset in halves:
            blocks[row, offset:offset + 2] = list(np.float16(rng.normal() * 0.05).tobytes())
    if size > 16:
        blocks[0, :] = np.where(np.arange(size) % 2, 0, 255)  # smallest and largest quants beside each other
        blocks[1, :] = 255
        for offset, bits in itertools.product(halves, [0x2E66]):
            blocks[0:2, offset:offset + 2] = list(struct.pack("<H", bits))
    return blocks


def weights(path, count):
    rng = np.random.default_rng(20)
    with open(path, "wb") as out, np.errstate(all="ignore"):
        for name, (size, halves) in TYPES.items():
            blocks = blocks_of(rng, size, halves, count if size > 4 else 4 * count)
            values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype("<f4")
            out.write(name.encode().ljust(8, b"\0") + struct.pack("<II", len(blocks), values.size))
            out.write(blocks.tobytes() + values.tobytes())


def reference_gguf(path):
    writer = gguf.GGUFWriter(str(path), "qwen3")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(32)
    writer.add_value_length(32)
    writer.add_context_length(128)
    writer.add_rope_freq_base(1000000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(5)
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -7)
    writer.add_uint16("test.u16", 65535)
    writer.add_int16("test.i16", -32768)
    writer.add_int32("test.i32", -5)
    writer.add_uint64("test.u64", 2**63 + 5)
    writer.add_int64("test.i64", -2**63)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "größer")
    writer.add_array("test.strings", ["a", "", "größer", "d" * 300])
    writer.add_array("test.ints", [3, -4, 5])
    writer.add_array("test.floats", [0.5, -1.25])
    ramp = np.arange(10 * 64, dtype=np.float32).reshape(10, 64) / 64
    writer.add_tensor("token_embd.weight", ramp.astype(np.float16))
    writer.add_tensor("output_norm.weight", np.arange(64, dtype=np.float32))
    writer.add_tensor("blk.0.attn_q.weight", gguf.quants.quantize(ramp, gguf.GGMLQuantizationType.Q8_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def reference_safetensors(path):
    """One tensor of every element type, a scalar, an empty one."""
    raw = {
        "bf16": ("bfloat16", [5], struct.pack("<5H", 0x3F80, 0x7F80, 0xFFC1, 0x0001, 0x8000)),
        "f16": ("float16", [5], struct.pack("<5H", 0x3C00, 0x7C00, 0x7E01, 0x0001, 0x8000)),
        "f32": ("float32", [2, 2], struct.pack("<4f", 1.0, -0.0, 2.0**-149, float("inf"))),
        "f64": ("float64", [1], struct.pack("<d", 0.1)),
        "i64": ("int64", [1], struct.pack("<q", -2)),
        "i32": ("int32", [1], struct.pack("<i", -3)),
        "u8": ("uint8", [3], bytes([1, 2, 255])),
        "bool": ("bool", [2], bytes([0, 1])),
        "f8_e4m3": ("float8_e4m3fn", [2], bytes([0x38, 0x7F])),
        "f8_e5m2": ("float8_e5m2", [2], bytes([0x3C, 0x7C])),
        "scalar": ("float32", [], struct.pack("<f", 2.5)),
        "empty": ("float32", [0, 7], b""),
    }
    kept = {name: np.frombuffer(data or bytes(8), dtype=np.uint8) for name, (_, _, data) in raw.items()}
    safetensors.serialize_file(
        {name: safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=kept[name].ctypes.data, data_len=len(data))
         for name, (dtype, shape, data) in raw.items()}, str(path), {"format": "pt"})


def main():
    folder = pathlib.Path(sys.argv[1])
    weights(folder / "weights.bin", int(sys.argv[2]) if len(sys.argv) > 2 else 6)
    reference_gguf(folder / "reference.gguf")
    reference_safetensors(folder / "reference.safetensors")


main()
