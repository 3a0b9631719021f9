"""Files as ``torch.save`` writes them, made without PyTorch, and hostile ones.

Python's own pickle writes them, with modules of PyTorch's names that hold nothing.
"""

import contextlib
import io
import pickle
import struct
import sys
import types
import zipfile

import ml_dtypes
import numpy as np

KINDS = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
MAGIC = 0x1950A86A20F9469CFC6C


class Storage:
    """Numbers that tensors are views of."""

    def __init__(self, array, key, view=None):
        self.array, self.key = np.ascontiguousarray(array).reshape(-1), key
        self.view = view


class Tensor:
    """A view of a storage."""

    def __init__(self, storage, shape, strides=None, offset=0):
        self.storage, self.shape, self.offset = storage, tuple(shape), offset
        steps = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        self.strides = tuple(steps if strides is None else strides)


def tensor(array, key):
    """A tensor with a storage of its own."""
    return Tensor(Storage(array, key), np.shape(array))


@contextlib.contextmanager
def torch_names():
    """Within the block there are modules with the names that pickles refer to."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def rebuild():
        raise AssertionError

    rebuild.__module__ = "torch._utils"
    rebuild.__qualname__ = rebuild.__name__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = rebuild
    for name in KINDS.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    names = {"torch": torch, "torch._utils": utils}
    kept = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        yield torch, rebuild
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def dump(value, legacy=False):
    """The pickle of a value with tensors, and the storages in it."""
    storages = {}
    with torch_names() as (torch, rebuild):

        class Pickler(pickle.Pickler):
            def persistent_id(self, held):
                if not isinstance(held, Storage):
                    return None
                storages[held.key] = held
                kind = getattr(torch, KINDS[held.array.dtype.name])
                told = ("storage", kind, held.key, "cpu", held.array.size)
                return (*told, held.view) if legacy else told

            def reducer_override(self, held):
                if not isinstance(held, Tensor):
                    return NotImplemented
                place = held.storage, held.offset, held.shape, held.strides
                return rebuild, (*place, False, {})

        file = io.BytesIO()
        Pickler(file, protocol=2).dump(value)
    return file.getvalue(), storages


def zipped(value, folder="archive"):
    """The bytes of a file of PyTorch 1.6 or later."""
    about, storages = dump(value)
    return archive(
        {"data.pkl": about, "version": b"3\n", "byteorder": b"little"}
        | {f"data/{key}": s.array.tobytes() for key, s in storages.items()},
        folder,
    )


def archive(members, folder="archive", packing=zipfile.ZIP_STORED):
    """The bytes of a zip file of these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as made:
        for name, data in members.items():
            made.writestr(f"{folder}/{name}", data)
    return file.getvalue()


def legacy(value):
    """The bytes of a file from before PyTorch 1.6."""
    about, storages = dump(value, legacy=True)
    info = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    parts = [pickle.dumps(part, 2) for part in (MAGIC, 1001, info)]
    parts += [about, pickle.dumps(sorted(storages), 2)]
    for key in sorted(storages):
        array = storages[key].array
        parts += [struct.pack("<q", array.size), array.tobytes()]
    return b"".join(parts)


def sample():
    """A checkpoint with views, strides, a shared storage, and several dtypes."""
    shared = Storage(np.arange(24, dtype="f4"), "0")
    half = np.arange(6, dtype="f4").astype(ml_dtypes.bfloat16)
    return {
        "epoch": 3,
        "best": 0.5,
        "name": "net",
        "optimizer": {"state": {0: {"momentum": tensor(np.ones(2, "f4"), "9")}}},
        "state_dict": {
            "a.weight": Tensor(shared, (2, 3)),
            "a.transposed": Tensor(shared, (3, 2), (1, 3)),
            "b.late": Tensor(shared, (2, 4), (8, 2), offset=7),
            "b.expanded": Tensor(shared, (3, 2), (0, 1), offset=2),
            "c.half": tensor(half.reshape(2, 3), "1"),
            "c.count": tensor(np.array(7), "2"),
            "c.flags": tensor(np.array([True, False]), "3"),
            "d.empty": tensor(np.zeros((0, 3), "f8"), "4"),
        },
    }


def expected():
    """What is in it."""
    numbers = np.arange(24, dtype="f4")
    first = numbers[:6].reshape(2, 3)
    return {
        "a.weight": first,
        "a.transposed": first.T,
        "b.late": np.stack([numbers[7:15:2], numbers[15:23:2]]),
        "b.expanded": np.stack([numbers[2:4]] * 3),
        "c.half": np.arange(6, dtype="f4").astype(ml_dtypes.bfloat16).reshape(2, 3),
        "c.count": np.array(7),
        "c.flags": np.array([True, False]),
        "d.empty": np.zeros((0, 3)),
    }


# ---------------------------------------------------------------------- hostile ones
def hostile():
    """Names and bytes of pickles that want more than tensors, or without bound."""
    proto = b"\x80\x02"
    yield "os.system", proto + b"cos\nsystem\nX\x02\x00\x00\x00id\x85R."
    yield "posix.system", proto + b"cposix\nsystem\nX\x02\x00\x00\x00id\x85R."
    yield "eval", proto + b"c__builtin__\neval\nX\x01\x00\x00\x001\x85R."
    yield "getattr", proto + b"cbuiltins\ngetattr\n(NNtR."
    name = b"\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R."
    yield "by a name on the stack", b"\x80\x04" + name
    yield "torch.load in it", proto + b"ctorch.storage\n_load_from_bytes\nC\x01a\x85R."
    yield "a storage that is called", proto + b"ctorch\nFloatStorage\n)R."
    yield "an attribute of a module", proto + b"ctorch\nhub.load\n)R."
    yield "an instance", proto + b"(icollections\nOrderedDict\n."
    yield "a tensor of nothing", proto + b"ctorch._utils\n_rebuild_tensor_v2\n)R."
    yield "a memo of 2 ** 32 entries", proto + b"Nr\xff\xff\xff\xff."
    yield "a text of 2 ** 31 bytes", proto + b"X\xff\xff\xff\x7fabc."
    yield "bytes of 2 ** 62", b"\x80\x04\x8e" + b"\xff" * 7 + b"\x3fabc."
    yield "nothing on the stack", proto + b"R."
    yield "a mark alone", proto + b"(."
    yield "no end", proto + b"]" * 100
    yield "an unknown instruction", proto + b"\xff."
    yield "lists without end", proto + b"]" * 400_000 + b"."
    deep = b"".join(b"h\x00h\x00\x86q\x00" for _ in range(60))
    yield "a hash of 2 ** 60 steps", proto + b"}K\x01q\x00" + deep + b"K\x02s."
    doubled = b"]q\x00" + b"".join(
        b"]q" + bytes([i]) + b"(h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"e"
        for i in range(1, 60)
    )
    yield "lists of 2 ** 60 parts", proto + doubled + b"."
    device = proto + b"ctorch\ndevice\n" + b")q\x00"
    nested = b"".join(b"h\x00h\x00\x86q\x00" for _ in range(60))
    yield "a text of 2 ** 60 parts", device + nested + b"\x85R."
    yield (
        "an array that is not there",
        (proto + b"cnumpy.core.multiarray\n_reconstruct\n)R" + b"(K\x01(K\x7ftNNNtb."),
    )


# ---------------------------------------------------------------------- that multiply
PROTO = b"\x80\x02"
DOUBLED = b"".join(b"h\x00h\x00\x86q\x00" for _ in range(60))  # tuples of tuples
WORDS = b"".join(b"X\x08\x00\x00\x00" + b"%08d" % i for i in range(20_000))
REDUCTIONS = 4000


def number(value):
    """The instruction that makes an integer of any size."""
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def text(value):
    """The instruction that makes a text."""
    return b"X" + struct.pack("<I", len(value)) + value


def call(name, argument):
    """The instructions that call a function on what a few instructions make."""
    return b"c" + name.replace(".", "\n").encode() + b"\n" + argument + b"\x85R"


def multiplied():
    """Names and bytes of pickles whose results are far larger than they are."""
    deep = b"K\x01q\x00" + DOUBLED
    pair = deep + b"K\x02\x86"  # a key whose hash takes 2 ** 60 steps
    for name in ("argparse.Namespace", "collections.OrderedDict"):
        yield f"{name} with a deep key", PROTO + call(name, b"]" + pair + b"a") + b"."
    yield "a deep key", PROTO + b"}" + deep + b"K\x02s."
    state = b"}" + deep + b"K\x02s"
    space = b"cargparse\nNamespace\n)\x81"
    yield "attributes with a deep key", PROTO + space + state + b"b."
    yield "attributes that are pairs", PROTO + space + b"]" + pair + b"ab."
    equal = (number((2**61 - 1) * i) + b"N" for i in range(1, 60_000))
    yield "numbers of equal hashes", PROTO + b"}(" + b"".join(equal) + b"u."
    floats = (b"G" + struct.pack(">d", float(i << 61)) + b"N" for i in range(60_000))
    yield "floats of equal hashes", PROTO + b"}(" + b"".join(floats) + b"u."

    words = PROTO + b"](" + WORDS + b"eq\x00](" + b"h\x00" * 20_000
    for kind in ("builtins.set", "__builtin__.set", "torch.Size"):
        again = call(kind, b"h\x00") * REDUCTIONS
        yield f"{kind} of a long list", words + b"e(" + again + b"t."
    entries = b"".join(text(b"%06d" % i) + b"N\x86" for i in range(20_000))
    pairs = PROTO + b"](" + entries + b"eq\x00("
    for kind in ("collections.OrderedDict", "collections.defaultdict"):
        yield f"{kind} of a long list", pairs + call(kind, b"h\x00") * 4000 + b"t."
    yield (
        "Namespace of a long list",
        pairs + call("argparse.Namespace", b"h\x00") + b".",
    )
    dict_ = (
        b"}(" + b"".join(text(b"%06d" % i) + b"N" for i in range(20_000)) + b"uq\x00"
    )
    yield "attributes of a long dict", PROTO + dict_ + b"(" + b"}h\x00b" * 4000 + b"t."
    long = PROTO + text(b"x" * 300_000) + b"q\x00X\x06\x00\x00\x00latin1q\x01("
    encode = b"c_codecs\nencode\nh\x00h\x01\x86R"
    yield "encodings of a long text", long + encode * 10_000 + b"t."
    scalar = b"cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85Rq\x02"
    numpy = b"cnumpy.core.multiarray\nscalar\nh\x02h\x00\x86R"
    yield "scalars of a long text", long + scalar + numpy * 100_000 + b"t."
    array = b"cnumpy\nndarray\n)R(K\x01)h\x02\x89h\x00tb"
    yield "arrays of a long text", long + scalar + array * 10_000 + b"t."
    wide = PROTO + text("\U0001f600".encode() + b"x" * 1_000_000)
    yield "texts that a character widens", wide * 8 + b"."
    names = PROTO + text(b"x" * 2_000_000) + b"q\x00(" + b"h\x00h\x00\x93" * 1000
    yield "long names on the stack", names + b"t."
    yield "a memo in every instruction", b"\x80\x04(" + b"]\x94" * 1_000_000 + b"t."
    yield "lists in lists", PROTO + b"]" * 600_000 + b"a" * 599_999 + b"."
    yield "dicts without end", PROTO + b"(" + b"}" * 2_000_000 + b"t."
    yield "texts without end", PROTO + b"(" + b"U\x00" * 2_000_000 + b"t."
    names = b"".join(b"U\x05%05dh\x00" % i for i in range(20_000))
    list_ = b"](" + b"K\x01" * 50_000 + b"eq\x00"
    yield "a list under 20,000 names", PROTO + list_ + b"}(" + names + b"u."


def multiplied_tensors():
    """Names and bytes of whole files whose tensors are far larger than they are."""
    for name, shape, strides in (
        ("a stride of zero", (2**31, 2), (0, 1)),
        ("strides of zero", (2**20, 2**20), (0, 0)),
        ("strides that overlap", (40_000, 40_000), (1, 1)),
        ("a window", (2**16, 2**15), (1, 2)),
        ("a rank of 32", (8,) * 12, (1,) * 12),
        ("no elements of 2 ** 62", (0, 2**61), (1, 1)),
    ):
        storage = Storage(np.arange(100_000, dtype="f4"), "0")
        yield name, {"w": Tensor(storage, shape, strides)}
    one = tensor(np.ones(1_000_000, "f4"), "0")
    yield "one tensor under many names", {f"w{i}": one for i in range(20_000)}
    small = tensor(np.ones(2, "f4"), "0")
    yield "one tensor in a list under a long name", {"x" * 4000: [small] * 50_000}
    nested = small
    for _ in range(40):
        nested = [nested]
    yield "a tensor too deep", {"w": nested}
    yield "a name that is too long", {"a": small, "x" * 3000: {"y" * 3000: small}}
