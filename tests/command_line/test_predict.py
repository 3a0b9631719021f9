"""``exburn predict``: what goes from a file to a model, and what comes out."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

import exburn
from exburn import layers
from exburn.command_line.main import main

X = np.arange(12, dtype=np.float32).reshape(3, 4) / 10


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    flower = exburn.Input((4,), name="flower")
    iris = exburn.Model(flower, layers.Dense(3, name="species")(flower))
    age = exburn.Input((1,), name="age")
    city = exburn.Input((1,), dtype="string", name="city")
    hot = layers.StringLookup(vocabulary=["Oslo", "Rome"], output_mode="one_hot")(city)
    price = layers.Dense(1, name="price")(layers.Concatenate()([age, hot]))
    digit = exburn.Input((4, 2, 1), name="digit")
    flat = layers.Flatten()(digit)
    made = {
        "iris": iris,
        "two": exburn.Model([age, city], [price, hot]),
        "digit": exburn.Model(digit, [flat, digit]),
        "vectors": exburn.Model([flower, age], layers.Concatenate()([flower, age])),
    }
    for name, model in made.items():
        model.save(folder / f"{name}.exburn")
    iris.export(folder / "iris.stablehlo")
    return folder, made


def predict(capsys, *words, code=0):
    """Standard output and error of the command."""
    assert main(["predict", *map(str, words)]) == code, capsys.readouterr()
    return capsys.readouterr()


def table(text):
    """The numbers of a CSV by column."""
    names, *rows = csv.reader(text.splitlines())
    return names, np.array(rows, dtype=float)


def written(path, text):
    path.write_text(text)
    return path


ROWS = "".join(",".join(map(str, row)) + "\n" for row in X)
TABLES = {
    "names.csv": "a,b,c,d\n" + ROWS,
    "numbers.csv": ROWS,
    "semicolons.csv": "a;b;c;d\n" + ROWS.replace(",", ";"),
    "windows.csv": "\ufeffa,b,c,d\r\n" + ROWS.replace("\n", "\r\n"),
    "tabs.tsv": "a\tb\tc\td\n" + ROWS.replace(",", "\t"),
    "quoted.csv": '"a","b\nb",c,d\n' + ROWS,
    "flower.csv": "id,flower_3,flower_2,flower_1,flower_0\n"
    + "".join(f"7,{d},{c},{b},{a}\n" for a, b, c, d in X),
    "lists.json": json.dumps(X.tolist()),
    "columns.json": json.dumps({"id": [1, 2, 3], "flower": X.tolist()}),
    "rows.json": json.dumps(
        [dict(zip("abcd", row, strict=True)) for row in X.tolist()]
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_one_input(name, models, tmp_path, capsys):
    folder, made = models
    data = written(tmp_path / name, TABLES[name])
    names, found = table(predict(capsys, folder / "iris.exburn", data).out)
    assert names == ["species_0", "species_1", "species_2"]
    np.testing.assert_allclose(found, made["iris"].predict(X, verbose=0), rtol=1e-5)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("model", ["iris.exburn", "iris.stablehlo"])
def test_arrays_and_other_models(suffix, model, models, tmp_path, capsys):
    data = tmp_path / f"data{suffix}"
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(X, columns=list("abcd")).to_parquet(data)
    elif suffix == ".npz":
        np.savez(data, flower=X, other=X)
    else:
        np.save(data, np.asfortranarray(X))
    _, found = table(predict(capsys, models[0] / model, data).out)
    np.testing.assert_allclose(
        found, models[1]["iris"].predict(X, verbose=0), rtol=1e-5
    )


def test_onnx(models, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    models[1]["iris"].export(tmp_path / "iris.onnx")
    data = written(tmp_path / "x.csv", TABLES["names.csv"])
    names, found = table(predict(capsys, tmp_path / "iris.onnx", data).out)
    assert names == ["species_0", "species_1", "species_2"]
    np.testing.assert_allclose(
        found, models[1]["iris"].predict(X, verbose=0), rtol=1e-5
    )


def test_columns_go_to_the_inputs_of_their_names(models, tmp_path, capsys):
    folder, made = models
    data = written(tmp_path / "x.csv", "id,city,age\n1,Oslo,31\n2,Rome,4\n")
    x = {"age": np.array([[31.0], [4.0]]), "city": np.array([["Oslo"], ["Rome"]])}
    expected = made["two"].predict(x, verbose=0)
    names, found = table(predict(capsys, folder / "two.exburn", data).out)
    assert names[0] == "price" and len(names) == 4
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1), rtol=1e-5)
    data = written(
        tmp_path / "v.csv", "age," + "".join(f"flower_{i}," for i in range(4))
    )
    data.write_text(data.read_text().rstrip(",") + "\n9,1,2,3,4\n")
    _, found = table(predict(capsys, folder / "vectors.exburn", data).out)
    np.testing.assert_array_equal(found, [[1, 2, 3, 4, 9]])


def test_whole_numbers_beyond_32_bits_and_flags(models, tmp_path, capsys):
    data = written(tmp_path / "x.csv", "age,city\n10000000000,Oslo\n")
    x = {"age": np.array([[1e10]]), "city": np.array([["Oslo"]])}
    expected = models[1]["two"].predict(x, verbose=0)[0]
    out = predict(capsys, models[0] / "two.exburn", data).out
    np.testing.assert_allclose(table(out)[1][:, :1], expected, rtol=1e-5)
    flag = exburn.Input((2,), dtype="bool", name="flag")
    exburn.Model(flag, exburn.ops.logical_not(flag)).save(tmp_path / "not.exburn")
    data = written(tmp_path / "f.csv", "a,b\ntrue,0\nFalse,1\n")
    out = predict(capsys, tmp_path / "not.exburn", data).out
    assert out.splitlines()[1:] == ["False,True", "True,False"]


def test_columns_are_chosen(models, tmp_path, capsys):
    data = written(tmp_path / "x.csv", "y,d,c,b,a\n" + "".join(
        f"0,{d},{c},{b},{a}\n" for a, b, c, d in X
    ))  # fmt: skip
    words = models[0] / "iris.exburn", data, "--columns", "a,b, c,d"
    _, found = table(predict(capsys, *words).out)
    np.testing.assert_allclose(
        found, models[1]["iris"].predict(X, verbose=0), rtol=1e-5
    )


def test_files_that_are_written(models, tmp_path, capsys):
    model, data = models[0] / "iris.exburn", written(tmp_path / "x.csv", ROWS)
    expected = models[1]["iris"].predict(X, verbose=0)
    for suffix in ("csv", "json", "npy", "npz"):
        target = tmp_path / f"out.{suffix}"
        told = json.loads(predict(capsys, model, data, "-o", target, "--json").out)
        assert told == {"rows": 3, "to": str(target), "outputs": {"species": [3, 3]}}
        if suffix == "csv":
            found = table(target.read_text())[1]
        elif suffix == "json":
            found = json.loads(target.read_text())["species"]
        else:
            found = np.load(target)
        found = found["species"] if suffix == "npz" else found
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        before = target.read_bytes()
        assert (
            "is there already" in predict(capsys, model, data, "-o", target, code=1).err
        )
        assert target.read_bytes() == before
        predict(capsys, model, data, "-o", target, "--force")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "out.csv", "out.json", "out.npy", "out.npz", "x.csv",
    ]  # fmt: skip
    told = json.loads(predict(capsys, model, data, "--json").out)
    np.testing.assert_allclose(told["outputs"]["species"], expected, rtol=1e-5)


def test_folders_of_images_and_texts(models, tmp_path, capsys):
    pixels = np.random.default_rng(0).integers(0, 255, (2, 4, 2), np.uint8)
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for name, image in zip(("b.png", "more/a.png"), pixels, strict=True):
        Image.fromarray(image).save(tmp_path / "photos" / name)
    model, target = models[0] / "digit.exburn", tmp_path / "out.json"
    predict(capsys, model, tmp_path / "photos", "-o", target)
    told = json.loads(target.read_text())
    assert told.pop("files") == ["b.png", "more/a.png"]
    flat, square = told.values()
    np.testing.assert_array_equal(flat, pixels.reshape(2, 8))
    np.testing.assert_array_equal(np.array(square)[..., 0], pixels)
    said = predict(capsys, model, tmp_path / "photos" / "b.png", code=1).err
    assert "has no columns" in said and ".npy, .npz or .json" in said
    said = predict(capsys, model, tmp_path / "photos", "-o", tmp_path / "o.npy", code=1)
    assert ".npy holds one array, the model has 2 outputs" in said.err


def test_texts(tmp_path, capsys):
    text = exburn.Input((1,), dtype="string", name="text")
    lookup = layers.StringLookup(vocabulary=["good", "bad"], output_mode="int")
    exburn.Model(text, lookup(text)).save(tmp_path / "mood.exburn")
    lines = written(tmp_path / "lines.txt", "good\nbad\n?\n")
    out = predict(capsys, tmp_path / "mood.exburn", lines).out
    assert out.splitlines()[1:] == ["1", "2", "0"]
    (tmp_path / "texts").mkdir()
    written(tmp_path / "texts" / "one.txt", "bad")
    out = predict(capsys, tmp_path / "mood.exburn", tmp_path / "texts").out
    assert out.splitlines()[1:] == ["one.txt,2"]


WRONG = [  # model, the file's name, its text, what is said
    ("two", "a.csv", "id\n1\n", "a.csv lacks 2 columns: age, city\n  it has: id"),
    ("two", "a.csv", "age,city\n1,Oslo\n?,Rome\n", "'age' holds no number in row 2"),
    ("two", "a.csv", "age,city\n,Oslo\n", "'age' holds no number in row 1"),
    ("two", "a.csv", "age,city\n1_0,Oslo\n", "'age' holds no number in row 1"),
    ("two", "a.json", "[[1, 2]]", "holds one array, the model takes 2"),
    ("iris", "a.csv", "a,b,c\n1,2,3\n", "takes 4 columns, a.csv has 3"),
    ("iris", "a.csv", "a,b,c,d,y\n1,2,3,4,5\n", "→ --columns a,b,c names them"),
    ("iris", "a.csv", "a,b,c,d\n1,2,3\n", "row 1 of a.csv has 3 cells, not 4"),
    ("iris", "a.csv", "a,a,c,d\n1,2,3,4\n", "a.csv has two columns 'a'"),
    ("iris", "a.csv", "", "a.csv is empty"),
    ("iris", "a.csv", "a,b,c,d\n", "the data is empty"),
    ("iris", "a.csv", b"a\xff,b\n", "is no text in UTF-8"),
    ("iris", "a.txt", "hello\n", "takes float32, received texts"),
    ("iris", "a.json", "{", "a.json is no JSON"),
    ("iris", "a.json", "[" * 100_000, "a.json is no JSON"),
    ("iris", "a.json", "3", "must hold a list of rows"),
    ("iris", "a.json", "[[1, 2], [3]]", "its rows have unlike lengths"),
    ("iris", "a.json", '[{"a": 1}, {"b": 1}]', "row 1 of a.json has no 'b'"),
    ("iris", "a.json", '{"a": [1], "b": [1, 2]}', "columns of unlike lengths"),
    ("iris", "a.npy", b"no array", "is no array of NumPy"),
    ("iris", "a.parquet", b"PAR1 nothing", "is no Parquet file"),
    ("iris", "a.xls", "1", "data are not read from 'a.xls'"),
    ("iris", "a.png", b"", "[height, width, 1, 3 or 4]"),
]


@pytest.mark.parametrize(("model", "name", "text", "said"), WRONG)
def test_what_does_not_fit_is_said(model, name, text, said, models, tmp_path, capsys):
    data = tmp_path / name
    data.write_bytes(text if isinstance(text, bytes) else text.encode())
    words = models[0] / f"{model}.exburn", data, "-o", tmp_path / "out.csv"
    assert said in predict(capsys, *words, code=1).err
    assert not (tmp_path / "out.csv").exists()


def test_an_array_that_says_more_than_it_holds(models, tmp_path, capsys):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 4), }"
    header = header.ljust(117) + b"\n"
    data = tmp_path / "a.npy"
    data.write_bytes(b"\x93NUMPY\x01\x00v\x00" + header)
    said = predict(capsys, models[0] / "iris.exburn", data, code=1).err
    assert "is not as long as its shape says" in said
    np.save(data, np.array([{}]), allow_pickle=True)
    said = predict(capsys, models[0] / "iris.exburn", data, code=1).err
    assert "not numbers or texts" in said
