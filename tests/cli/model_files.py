"""Reads and writes safetensors and GGUF files, enough to turn a good model into every kind of bad one.

Standard library only; written against the formats' public descriptions, not against the reader under test.
"""

import json
import os
import shutil
import struct

# ---- safetensors: u64 header length, JSON header, data ------------------------------------------------


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} in the order of the data."""
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], content[8 + length + begin:8 + length + end])
    return tensors


def write_safetensors(path, tensors, pad=0):
    """pad: spaces behind the JSON, which shift where the data begins."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode() + b" " * pad
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


# ---- a copy of a model folder, changed -----------------------------------------------------------------


class Folder:
    """A copy of a model folder in which a test changes what it wants."""

    def __init__(self, source, into, name="model"):
        self.path = os.path.join(into, name)
        shutil.copytree(source, self.path)

    def file(self, name):
        return os.path.join(self.path, name)

    def config(self, **changes):
        """Set keys of config.json; None removes one."""
        with open(self.file("config.json"), encoding="utf-8") as file:
            config = json.load(file)
        for key, value in changes.items():
            config.pop(key, None)
            if value is not None:
                config[key] = value
        with open(self.file("config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return self

    def tensors(self, change, name="model.safetensors", pad=0):
        """Rewrite a file of weights; change gets the tensors and changes or returns them."""
        tensors = read_safetensors(self.file(name))
        tensors = change(tensors) or tensors
        write_safetensors(self.file(name), tensors, pad)
        return self

    def cut(self, name, keep):
        """Cut a file to keep bytes, or by -keep bytes."""
        size = os.path.getsize(self.file(name))
        os.truncate(self.file(name), keep if keep >= 0 else size + keep)
        return self

    def remove(self, *names):
        for name in names:
            os.remove(self.file(name))
        return self


# ---- GGUF v3: magic, version, counts, key/value pairs, tensor infos, data ------------------------------

FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, U16, U32, I32, U64 = 8, 9, 2, 4, 5, 10
BLOCK = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144),
         13: (256, 176), 14: (256, 210), 30: (1, 2)}


class Gguf:
    """pairs: [(key, type, raw bytes of the value)]; tensors: [(name, dims, type, bytes)]."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.content = file.read()
        self.at = 8
        count, pairs = self._take("<QQ")
        self.pairs = [self._pair() for _ in range(pairs)]
        infos = [self._info() for _ in range(count)]
        alignment = next((struct.unpack("<I", raw)[0] for key, _, raw in self.pairs if key == "general.alignment"), 32)
        start = (self.at + alignment - 1) // alignment * alignment
        self.tensors = []
        for name, dims, kind, offset in infos:
            elements = 1
            for dim in dims:
                elements *= dim
            per, size = BLOCK[kind]
            begin = start + offset
            self.tensors.append((name, dims, kind, self.content[begin:begin + elements // per * size]))

    def _take(self, form):
        values = struct.unpack_from(form, self.content, self.at)
        self.at += struct.calcsize(form)
        return values

    def _string(self):
        length = self._take("<Q")[0]
        self.at += length
        return self.content[self.at - length:self.at].decode()

    def _skip(self, kind):
        if kind == STRING:
            self._string()
        elif kind == ARRAY:
            inner, count = self._take("<IQ")
            for _ in range(count):
                self._skip(inner)
        else:
            self.at += FIXED[kind]

    def _pair(self):
        key, kind = self._string(), self._take("<I")[0]
        begin = self.at
        self._skip(kind)
        return key, kind, self.content[begin:self.at]

    def _info(self):
        name, ndim = self._string(), self._take("<I")[0]
        dims = self._take("<%dQ" % ndim)
        kind, offset = self._take("<IQ")
        return name, dims, kind, offset

    def write(self, path, alignment=None, tensors=None, extra=(), pairs=None):
        """alignment None: the default of 32, without its key."""
        tensors = self.tensors if tensors is None else tensors
        pairs = [p for p in (self.pairs if pairs is None else pairs) if p[0] != "general.alignment"] + list(extra)
        if alignment is not None:
            pairs.insert(0, ("general.alignment", U32, struct.pack("<I", alignment)))
        step = alignment or 32
        out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)))
        for key, kind, raw in pairs:
            out += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + raw
        offset = 0
        for name, dims, kind, data in tensors:
            out += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(dims))
            out += struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", kind, offset)
            offset += (len(data) + step - 1) // step * step
        out += bytes(-len(out) % step)
        for _, _, _, data in tensors:
            out += data + bytes(-len(data) % step)
        with open(path, "wb") as file:
            file.write(out)
        return path

    def write_split(self, folder, stem, parts):
        """The tensors dealt to files STEM-0000N-of-0000M.gguf; returns their paths.  Only the first has all metadata."""
        paths = []
        for part in range(parts):
            path = os.path.join(folder, "%s-%05d-of-%05d.gguf" % (stem, part + 1, parts))
            split = [("split.no", U16, struct.pack("<H", part)), ("split.count", U16, struct.pack("<H", parts)),
                     ("split.tensors.count", I32, struct.pack("<i", len(self.tensors)))]
            mine = self.tensors[part * len(self.tensors) // parts:(part + 1) * len(self.tensors) // parts]
            paths.append(self.write(path, tensors=mine, extra=split, pairs=self.pairs if part == 0 else []))
        return paths


# ---- GPT-2's alphabet: how a byte-level vocabulary spells bytes ----------------------------------------


def byte_alphabet():
    """[256] the character that stands for each byte."""
    plain = list(range(0x21, 0x7f)) + list(range(0xa1, 0xad)) + list(range(0xae, 0x100))
    letters, extra = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte) if byte in plain else chr(256 + extra)
        extra += byte not in plain
    return [letters[byte] for byte in range(256)]
