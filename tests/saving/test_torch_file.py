"""Files of PyTorch are read without PyTorch, and nothing of them runs."""

import zipfile

import numpy as np
import pytest
from tests import limits
from tests.saving import mutations, torch_files

from exburn import layers, models, saving
from exburn.errors import FileFormatError, ModelFormatError
from exburn.weights import rules, transpose

FORMS = {"zip": torch_files.zipped, "legacy": torch_files.legacy}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def test_tensors_are_views_of_storages(form, tmp_path):
    path = tmp_path / "model.pth"
    path.write_bytes(form(torch_files.sample()))
    expected = torch_files.expected()
    with saving.read_weights(path) as found:
        assert set(found) == set(expected)  # the optimizer's are not among them
        for name, array in expected.items():
            assert found.shapes[name] == array.shape
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


def test_entries_of_several_dicts_keep_their_names(form, tmp_path):
    path = tmp_path / "model.pt"
    made = [torch_files.tensor(np.full(2, i, "f4"), str(i)) for i in range(3)]
    path.write_bytes(form({"net": {"w": made[0]}, "ema": [made[1], made[2]]}))
    found = saving.read_weights(path)
    assert list(found) == ["net.w", "ema.0", "ema.1"]
    path.write_bytes(form({"w": made[0]}))
    assert list(saving.read_weights(path)) == ["w"]


def test_a_part_of_another_storage(tmp_path):
    path = tmp_path / "model.pth"
    numbers = np.arange(10, dtype="f4")
    whole = torch_files.Storage(numbers, "0")
    part = torch_files.Storage(numbers, "0", view=("0v", 4, 3))
    tensors = {
        "a": torch_files.Tensor(whole, (10,)),
        "b": torch_files.Tensor(part, (3,)),
    }
    path.write_bytes(torch_files.legacy(tensors))
    assert saving.read_weights(path)["b"].tolist() == [4, 5, 6]


def test_a_model_loads_by_rules(form, tmp_path):
    path = tmp_path / "model.pth"
    weight = np.arange(6, dtype="f4").reshape(2, 3)
    tensors = {"fc.weight": (weight, "0"), "fc.bias": (np.array([1, 2], "f4"), "1")}
    path.write_bytes(
        form({name: torch_files.tensor(*about) for name, about in tensors.items()})
    )
    model = models.Sequential([layers.Input((3,)), layers.Dense(2, name="fc")])
    named = rules([("fc.weight", "fc/kernel", transpose), ("fc.bias", "fc/bias")])
    assert model.load_weights(path, rules=named).complete
    np.testing.assert_array_equal(model.get_weights()[0], weight.T)
    with pytest.raises(FileFormatError, match=r"not in the model: fc\.weight"):
        model.load_weights(path)


HOSTILE = {**dict(torch_files.hostile()), **dict(torch_files.multiplied())}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_runs_and_nothing_grows(name, tmp_path):
    path, pickled = tmp_path / "model.pth", HOSTILE[name]
    for data in (
        torch_files.archive({"data.pkl": pickled, "version": b"3"}),
        _legacy_of(pickled),
    ):
        path.write_bytes(data)
        with pytest.raises(ModelFormatError) as caught:
            limits.bounded(lambda: saving.read_weights(path))
        assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("name", dict(torch_files.multiplied_tensors()))
def test_tensors_that_their_storages_do_not_explain(name, form, tmp_path):
    path = tmp_path / "model.pth"
    path.write_bytes(form(dict(torch_files.multiplied_tensors())[name]))
    with pytest.raises(ModelFormatError):
        limits.bounded(lambda: read_all(path))


def test_keys_are_texts_that_occur_once(form, tmp_path):
    path = tmp_path / "model.pth"
    tensors = [torch_files.tensor(np.full(2, i, "f4"), str(i)) for i in range(4)]
    keys = (7, 0.5, None, b"raw")
    path.write_bytes(form(dict(zip(keys, tensors, strict=True))))
    assert list(saving.read_weights(path)) == ["7", "0.5", "None", "raw"]
    path.write_bytes(form({7: tensors[0], "7": tensors[1]}))
    with pytest.raises(ModelFormatError, match="the key '7' occurs twice"):
        saving.read_weights(path)


def _legacy_of(pickled):
    import pickle

    info = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    start = [pickle.dumps(part, 2) for part in (torch_files.MAGIC, 1001, info)]
    return b"".join([*start, pickled, pickle.dumps([], 2)])


def test_what_no_weights_need_is_named(tmp_path):
    path = tmp_path / "model.pth"
    pickled = b"\x80\x02cnets\nResNet\n)\x81."
    path.write_bytes(torch_files.archive({"data.pkl": pickled}))
    with pytest.raises(ModelFormatError, match=r"asks for nets\.ResNet.*\n.*\n.*state"):
        saving.read_weights(path)
    path.write_bytes(
        torch_files.archive({"data.pkl": b"\x80\x02N.", "constants.pkl": b""})
    )
    with pytest.raises(ModelFormatError, match="TorchScript"):
        saving.read_weights(path)
    path.write_bytes(b"\x80\x04N.")
    with pytest.raises(ModelFormatError, match="a pickle"):
        saving.read_weights(path)


def test_damage_is_found_before_a_weight_changes(tmp_path):
    path = tmp_path / "model.pth"
    arrays = {"fc/kernel": np.ones((3, 2), "f4"), "fc/bias": np.full(2, 5, "f4")}
    data = torch_files.zipped(
        {n: torch_files.tensor(a, str(i)) for i, (n, a) in enumerate(arrays.items())}
    )
    at = data.index(arrays["fc/bias"].tobytes())
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    model = models.Sequential([layers.Input((3,)), layers.Dense(2, name="fc")])
    before = model.get_weights()
    with pytest.raises(ModelFormatError, match="checksum"):
        model.load_weights(path)
    np.testing.assert_array_equal(before[0], model.get_weights()[0])
    path.write_bytes(data)
    assert model.load_weights(path).complete


def test_members_that_are_packed_or_missing(tmp_path):
    path = tmp_path / "model.pth"
    about, storages = torch_files.dump({"w": torch_files.tensor(np.ones(9), "0")})
    numbers = storages["0"].array.tobytes()
    for members, packing in (
        ({"data.pkl": about}, zipfile.ZIP_STORED),
        ({"data.pkl": about, "data/0": numbers[:-1]}, zipfile.ZIP_STORED),
        ({"data.pkl": about, "data/0": numbers}, zipfile.ZIP_DEFLATED),
        (
            {"data.pkl": about, "data/0": numbers, "byteorder": b"big"},
            zipfile.ZIP_STORED,
        ),
    ):
        path.write_bytes(torch_files.archive(members, packing=packing))
        with pytest.raises(ModelFormatError):
            saving.read_weights(path)


def read_all(path):
    with saving.read_weights(path) as found:
        for name in found:
            found[name]


def sealed(rng):
    """A zip file whose description is changed, and whose checksums fit all the same."""
    about, storages = torch_files.dump(torch_files.sample())
    members = {f"data/{key}": s.array.tobytes() for key, s in storages.items()}
    return torch_files.archive({"data.pkl": mutations.mutate(about, rng), **members})


@pytest.mark.parametrize("draws", [50, 1000])
@pytest.mark.parametrize("kind", [*FORMS, "sealed"])
def test_mutated_files(kind, draws, tmp_path):
    good = FORMS.get(kind, torch_files.zipped)(torch_files.sample())
    path = tmp_path / "model.pth"

    def make(rng):
        changed = sealed(rng) if kind == "sealed" else mutations.mutate(good, rng)
        path.write_bytes(changed)

    assert mutations.check(lambda: read_all(path), make, draws) < draws
