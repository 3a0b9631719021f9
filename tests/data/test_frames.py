"""Tables of pandas, polars and pyarrow: every kind of column, read by one path."""

import datetime
import decimal

import numpy as np
import pytest

from exburn import layers
from exburn.data import ReadOptions, as_dataset, read_columns
from exburn.data.columns import list_places
from exburn.errors import DataError, DTypeError, ShapeError

DAY = datetime.datetime(2020, 1, 1)
RAW = ReadOptions(raw=True)
LIBRARIES = ("pandas", "polars", "pyarrow", "batch", "narwhals")


@pytest.fixture(params=LIBRARIES)
def table(request):
    """A function that makes a frame of a library of columns by name."""
    name = {"batch": "pyarrow"}.get(request.param, request.param)
    library = pytest.importorskip(name)
    if request.param == "batch":
        return library.RecordBatch.from_pydict
    if request.param == "pyarrow":
        return library.Table.from_pydict
    if request.param == "narwhals":
        pandas = pytest.importorskip("pandas")
        return lambda columns: library.from_native(pandas.DataFrame(columns))
    return library.DataFrame


def column(frame, name):
    return frame.column(name) if hasattr(frame, "column_names") else frame[name]


def read(frame, y=None, **options):
    return as_dataset(frame, y, options=ReadOptions(**options)).tree


# The values of a column, the numbers that they are read as, and their dtype.
NUMBERS = {
    "floats": ([1.5, 2.5], [1.5, 2.5], "float32"),
    "integers": ([1, 2], [1, 2], "int32"),
    "booleans": ([True, False], [True, False], "bool"),
    "decimals": ([decimal.Decimal("1.5"), decimal.Decimal("2")], [1.5, 2], "float32"),
}
# The values of a column, and what the error says of it.
REFUSED = {
    "strings": (["Delft", "Ghent"], DTypeError, "holds strings: 'Delft' at row 0"),
    "a cell": (["1", "?", "3"], DTypeError, "must be numeric, but has '?' at row 1"),
    "written": (["1", "2.5"], DTypeError, "holds numbers as text: '1' at row 0"),
    "dates": ([DAY, DAY], DTypeError, "must be numeric, but holds dates"),
    "days": ([DAY.date()] * 2, DTypeError, "must be numeric, but holds dates"),
    "durations": ([DAY - DAY] * 2, DTypeError, "must be numeric, but holds durations"),
    "missing": ([1.0, None, 3.0], DataError, "has missing values at row 1"),
    "missing flag": ([None, True], DataError, "has missing values at row 0"),
    "all missing": ([None, None], DataError, "missing values at row 0 and row 1"),
    "many missing": ([None] * 3 + [1, None], DataError, "row 2 … (4 in all)"),
    "infinity": ([1.0, float("inf")], DataError, "but has inf at row 1"),
    "too large": ([1e39, 1.0], DataError, "but has 1e+39 at row 0"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_columns_of_numbers(table, case):
    values, numbers, dtype = NUMBERS[case]
    frame = table({"a": values})
    for data in (frame, column(frame, "a"), {"t": column(frame, "a")}):
        x = as_dataset(data).tree[0]
        x = x["t"] if isinstance(x, dict) else x
        assert x.dtype == dtype and x.shape == (2, 1)
        assert x[:, 0].tolist() == numbers
    two = as_dataset(table({"a": values, "b": values})).tree[0]
    assert two.dtype == dtype and two.tolist() == [[n, n] for n in numbers]


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_are_refused(table, case):
    values, error, text = REFUSED[case]
    frame = table({"fine": list(range(len(values))), "bad": values})
    for data, options in ((frame, None), ({"bad": column(frame, "bad")}, RAW)):
        if case in ("strings", "a cell", "written") and options:
            continue  # a model that looks strings up takes these
        with pytest.raises(error, match=r"^fit: x\['bad'\]") as caught:
            as_dataset(data, options=options)
        assert text in str(caught.value) and caught.value.hint


def test_columns_of_different_kinds_are_floats(table):
    frame = table({"a": [1.5, 2.5], "b": [3, 4], "c": [True, False]})
    x = as_dataset(frame, column(frame, "b")).tree[0]
    assert x.dtype == np.float32 and x.tolist() == [[1.5, 3, 1], [2.5, 4, 0]]
    flags = as_dataset(table({"a": [1, 2], "c": [True, False]})).tree[0]
    assert flags.dtype == np.float32 and flags.tolist() == [[1, 1], [2, 0]]


def test_all_columns_that_do_not_fit_are_named(table):
    bad = {"age": ["1", "?", "3"], "day": [DAY] * 3, "n": [1, None, 3], "k": [1, 2, 3]}
    frame = table(bad)
    with pytest.raises(DTypeError, match="fit: 4 columns cannot be read") as caught:
        as_dataset(frame, y=table({"kind": ["a", "b", "c"]}))
    lines = str(caught.value).splitlines()
    assert lines[1:5] == [
        "  x['age']: must be numeric, but has '?' at row 1",
        "  x['day']: must be numeric, but holds dates",
        "  x['n']: has missing values at row 1",
        "  y['kind']: must be numeric, but holds strings: 'a' at row 0, 'b' at row 1 "
        "and 'c' at row 2",
    ]
    assert "na_values" in lines[5] and "np.unique" in lines[5]
    many = table({f"c{i}": ["a"] for i in range(30)})
    with pytest.raises(DTypeError, match="30 columns .*x\\['c0'\\], .*x\\['c29'\\]"):
        as_dataset(many)
    dictionary = {name: column(frame, name) for name in bad}
    with pytest.raises(DTypeError, match="3 columns cannot be read"):
        as_dataset(dictionary)


def test_integers_beyond_int32(table):
    for columns in ({"a": [2**40, 1]}, {"a": [1, 2**40], "b": [1, 2], "c": [2**33, 1]}):
        with pytest.raises(DTypeError, match="int32 cannot|must fit into 32 bits"):
            as_dataset(table(columns))
        wide = as_dataset(table(columns), options=RAW).tree[0]
        assert wide.dtype == np.int64 and wide.max() == 2**40
    assert as_dataset(table({"a": [2**40], "b": [0.5]})).tree[0].dtype == np.float32


def test_missing_numbers_are_nan_where_nothing_is_checked(table):
    frame = table({"a": [1, None, 3], "b": [None, 0.5, 1.5], "c": [True, None, False]})
    x = read(frame, finite=False)[0]
    nan = np.nan
    np.testing.assert_array_equal(x, [[1, nan, 1], [nan, 0.5, nan], [3, 1.5, 0]])


def test_text_columns_for_a_model_that_looks_them_up(table):
    frame = table({"a": ["x", "y"], "b": ["u", "v"]})
    text = as_dataset(frame, options=RAW).tree[0]
    assert text.dtype == object and text.tolist() == [["x", "u"], ["y", "v"]]
    one = as_dataset(column(frame, "a"), options=RAW).tree[0]
    assert one.tolist() == [["x"], ["y"]]
    with pytest.raises(DataError, match=r"x\['a'\] has missing values at row 1"):
        as_dataset(table({"a": ["x", None]}), options=RAW)
    with pytest.raises(DTypeError, match=r"x\['a'\] must be numeric, but holds strin"):
        as_dataset(table({"a": ["x", "y"], "b": [1, 2]}), options=RAW)


def test_targets_are_not_looked_up(table):
    with pytest.raises(DTypeError, match="(?s)y.*Number the classes") as caught:
        as_dataset(np.ones((2, 1)), table({"kind": ["a", "b"]}), options=RAW)
    assert "return_inverse" in caught.value.hint
    text = "Number the classes"
    with pytest.raises(DTypeError, match=f"(?s)y must be numeric, .*{text}"):
        as_dataset(np.ones((2, 1)), np.array(["a", "b"]))


def test_frames_without_columns_or_rows(table):
    with pytest.raises(DataError, match="no columns"):
        as_dataset(table({}))
    with pytest.raises(DataError, match="is empty"):
        as_dataset(table({"a": [1.0]})[:0])


def test_frames_beside_arrays(table):
    data = as_dataset({"t": table({"a": [1.0, 2.0]})}, np.zeros(2))
    assert data.tree[0]["t"].shape == (2, 1)
    frame = table({"a": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="x and y must have the same number of rows"):
        as_dataset(np.ones(2), column(frame, "a"))


def test_nested_rows_are_arrays(table):
    frame = table({"a": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "b": [1, 2, 3]})
    alone = as_dataset(column(frame, "a")).tree[0]
    assert alone.dtype == np.float32 and alone.tolist() == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(DTypeError, match=r"x\['a'\] must hold one number a row, .* 2"):
        as_dataset(frame)
    ragged = table({"a": [[1.0], [2.0, 3.0]]})
    with pytest.raises(DTypeError, match="pad_sequences"):
        as_dataset(column(ragged, "a"))


def test_read_columns(table):
    frame = table({"n": [1, 2], "t": ["a", "b"], "day": [DAY, DAY]})
    columns = read_columns(frame, {"n": False, "t": True}, op="adapt")
    assert columns["n"].tolist() == [1, 2] and columns["t"].tolist() == ["a", "b"]
    with pytest.raises(DTypeError, match="adapt: 3 columns cannot be read"):
        read_columns(frame, {"n": True, "t": False, "day": False}, op="adapt")


def test_categories_are_their_values():
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    text = ["b", "a", "b"]
    arrow = pyarrow.array(text).dictionary_encode()
    frames = [
        pandas.DataFrame({"a": pandas.Categorical(text)}),
        pandas.DataFrame({"a": pandas.Series(arrow.to_pandas())}),
        pandas.DataFrame({"a": pandas.array(text, pandas.ArrowDtype(arrow.type))}),
        polars.DataFrame({"a": polars.Series(text, dtype=polars.Categorical)}),
        polars.DataFrame({"a": polars.Series(text, dtype=polars.Enum(["b", "a"]))}),
        pyarrow.table({"a": arrow}),
        pyarrow.record_batch({"a": arrow}),
    ]
    for frame in frames:
        assert as_dataset(frame, options=RAW).tree[0].tolist() == [["b"], ["a"], ["b"]]
        with pytest.raises(DTypeError, match=r"x\['a'\] must be numeric, but holds st"):
            as_dataset(frame)
    numbers = pyarrow.array([5, None, 7]).dictionary_encode()
    for frame in (pandas.DataFrame({"a": pandas.Categorical([5, None, 7])}),
                  pyarrow.table({"a": numbers})):  # fmt: skip
        np.testing.assert_array_equal(read(frame, finite=False)[0].T, [[5, np.nan, 7]])
        with pytest.raises(DataError, match="missing values at row 1"):
            as_dataset(frame)
    missing = pyarrow.table({"a": pyarrow.array(["b", None]).dictionary_encode()})
    with pytest.raises(DataError, match="missing values at row 1"):
        as_dataset(missing, options=RAW)
    bins = pandas.cut(pandas.Series([1.0, 2.0]), 2)
    with pytest.raises(DTypeError, match="holds Interval"):
        as_dataset(bins)


# Columns that one library alone has: the numbers that they are read as, or the error.
PANDAS = {
    "Int64": (lambda p: p.array([1, 2], dtype="Int64"), [1, 2]),
    "Int64 with NA": (lambda p: p.array([1, p.NA], dtype="Int64"), "values at row 1"),
    "boolean": (lambda p: p.array([True, False], dtype="boolean"), [True, False]),
    "boolean with NA": (lambda p: p.array([True, p.NA], dtype="boolean"), "at row 1"),
    "Float32": (lambda p: p.array([1.5, 2], dtype="Float32"), [1.5, 2]),
    "arrow": (lambda p: p.array([1, 2], dtype="int64[pyarrow]"), [1, 2]),
    "arrow with NA": (lambda p: p.array([1, None], dtype="int64[pyarrow]"), "at row 1"),
    "sparse": (lambda p: p.arrays.SparseArray([0.0, 2.0]), [0, 2]),
    "objects": (lambda p: p.Series([1, True], dtype=object), [1, 1]),
    "mixed objects": (lambda p: p.Series([1, "a", len], dtype=object), "strings: 'a'"),
    "odd objects": (lambda p: p.Series([1, len], dtype=object), "holds builtin_fun"),
    "None": (lambda p: p.Series([1, None], dtype=object), "missing values at row 1"),
    "NaT": (lambda p: p.to_datetime(p.Series(["2020-01-01", None])), "holds dates"),
    "time zone": (lambda p: p.date_range("2020", periods=2, tz="UTC"), "holds dates"),
    "period": (lambda p: p.period_range("2020", periods=2, freq="M"), "holds Period"),
    "complex": (lambda p: p.Series([1j, 2]), "holds complex"),
    "string": (lambda p: p.array(["a", None], dtype="string"), "holds strings: 'a'"),
    "arrays": (lambda p: p.Series([np.ones(2), np.zeros(2)]), [[1, 1], [0, 0]]),
}
POLARS = {
    "UInt64": (lambda p: p.Series([2**31 - 1], dtype=p.UInt64), [2**31 - 1]),
    "Int128": (lambda p: p.Series([1], dtype=p.Int128), "cannot become an array"),
    "Array": (lambda p: p.Series([[1, 2]], dtype=p.Array(p.Int8, 2)), [[1, 2]]),
    "Time": (lambda p: p.Series([datetime.time(1)]), "holds times of day"),
    "Struct": (lambda p: p.Series([{"a": 1, "b": "x"}]), "must be numeric"),
    "Binary": (lambda p: p.Series([b"a"]), "holds strings: b'a'"),
    "Object": (lambda p: p.Series([object()]), "holds object"),
    "NaN": (lambda p: p.Series([1.0, float("nan")]), "missing values at row 1"),
}


@pytest.mark.parametrize(
    ("library", "case"),
    [("pandas", c) for c in PANDAS] + [("polars", c) for c in POLARS],
)
def test_columns_of_one_library(library, case):
    package = pytest.importorskip(library)
    make, result = (PANDAS if library == "pandas" else POLARS)[case]
    frame = package.DataFrame({"a": make(package)})
    if isinstance(result, str):
        with pytest.raises((DataError, DTypeError)) as caught:
            as_dataset(frame)
        assert result in str(caught.value) and "x['a']" in str(caught.value)
    else:
        x = as_dataset(frame).tree[0]
        assert x.tolist() == (result if np.ndim(result) > 1 else [[n] for n in result])


def test_rows_go_by_position():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [0, 1]}, index=[7, 3])
    data = as_dataset(frame[["a"]], frame["b"])
    assert data.take([1])[0].tolist() == [[2.0]]
    frame.loc[3, "a"] = None
    with pytest.raises(DataError, match="missing values at row 1"):
        as_dataset(frame)


def test_names_of_columns():
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    numbers = np.arange(6.0).reshape(2, 3)
    for names in ([0, 1, 2], [("a", "x"), ("a", "y"), ("b", "x")], ["", " ", "a"]):
        frame = pandas.DataFrame(numbers, columns=pandas.Index(names))
        np.testing.assert_array_equal(as_dataset(frame).tree[0], numbers)
    assert as_dataset(pandas.Series([1, 2], name=("a", 1))).tree[0].shape == (2, 1)
    twice = pandas.DataFrame(numbers, columns=["a", "b", "a"])
    columns = [pyarrow.array([1])] * 3
    for frame in (twice, pyarrow.table(columns, names=["a", "b", "a"])):
        with pytest.raises(DataError, match=r"'a' \(2 times\)"):
            as_dataset(frame)


def test_queries_that_have_not_run():
    polars = pytest.importorskip("polars")
    with pytest.raises(DTypeError, match="x is a LazyFrame, .*\n.*\n.*collect"):
        as_dataset(polars.DataFrame({"a": [1.0]}).lazy())


def test_arrays_of_pyarrow():
    pyarrow = pytest.importorskip("pyarrow")
    assert as_dataset(pyarrow.array([1, 2])).tree[0].tolist() == [[1], [2]]
    with pytest.raises(DataError, match="missing values at row 1"):
        as_dataset(pyarrow.array([1, None]))


def test_an_adapter_of_the_user_comes_first(table, monkeypatch):
    from exburn.data import adapting, arrays, conversion

    class Own:
        def accepts(self, value):
            return type(value) is type(frame)

        def to_array(self, value, *, name, op):
            return np.array([7.0])

    frame = table({"a": [1]})
    monkeypatch.setattr(adapting, "ADAPTERS", adapting.ADAPTERS[:])
    monkeypatch.setattr(arrays, "ADAPTERS", adapting.ADAPTERS)
    monkeypatch.setattr(conversion, "ADAPTERS", adapting.ADAPTERS)
    adapting.register_adapter(Own)
    assert as_dataset(frame).tree[0].tolist() == [7]


def test_places_of_values():
    assert list_places(np.array([False, True])) == "row 1"
    assert list_places(np.ones(4, bool), lambda row: "x" * 50).startswith(
        "x" * 39 + "…"
    )


def test_a_layer_takes_what_is_an_array_by_its_own_account():
    pandas = pytest.importorskip("pandas")
    layer = layers.Dense(2)
    layer(np.ones((1, 2)))
    rows = pandas.Series([1.0, 2.0]), np.array([1.0, 2.0])
    own, plain = (layers.Identity()(r) for r in rows)
    assert own.dtype == plain.dtype == np.float32
    np.testing.assert_array_equal(own, plain)
    frame = pandas.DataFrame({"a": [1.0], "b": [2.0]})
    np.testing.assert_array_equal(layer(frame), layer(np.array([[1.0, 2.0]])))


def test_a_width_that_does_not_fit_names_the_columns(table):
    import jax

    spec = jax.ShapeDtypeStruct((None, 3), np.float32)
    with pytest.raises(ShapeError, match="(?s)x has 2 columns, .* 3 numbers.*'a', 'b'"):
        read(table({"a": [1.0], "b": [2.0]}), inputs={"x": spec})


def test_wide_frames_are_read_at_once(table):
    rng = np.random.default_rng(0)
    array = rng.normal(size=(3, 200)).astype("float32")
    columns = {f"c{i}": array[:, i].tolist() for i in range(200)}
    np.testing.assert_array_equal(as_dataset(table(columns)).tree[0], array)
    columns["c7"][1], columns["c9"][2] = None, float("inf")
    with pytest.raises(DataError, match="2 columns") as caught:
        as_dataset(table(columns))
    assert "x['c7']: has missing values at row 1" in str(caught.value)
    assert "x['c9']: must be finite in float32, but has inf at row 2" in str(
        caught.value
    )
    kept = read(table(columns), finite=False)[0]
    assert np.isnan(kept[1, 7]) and np.isinf(kept[2, 9])
    whole = {f"c{i}": [i, -i] for i in range(200)}
    x = as_dataset(table(whole)).tree[0]
    assert x.dtype == np.int32 and x.tolist() == [
        [*range(200)],
        [-i for i in range(200)],
    ]
    whole["c3"] = [1, 2**31]
    with pytest.raises(
        DTypeError, match=r"x\['c3'\] must fit into 32 bits, but has 2147"
    ):
        as_dataset(table(whole))
    assert as_dataset(table(whole), options=RAW).tree[0].dtype == np.int64
