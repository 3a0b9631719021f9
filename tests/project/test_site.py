"""The documentation site: what is gathered, and that links lead somewhere."""

import importlib.util
import inspect
import json
import re
import tomllib

import pytest
from tests.checkout import ROOT, load

import exburn

check, config, gallery, guides, notebooks, pages, parts, reference, search, table = (
    load(f"docs.site.{name}")
    for name in (
        *("check", "config", "gallery", "guides", "notebooks"),
        *("pages", "parts", "reference", "search", "table"),
    )
)


def test_broken_links_and_anchors_are_found(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text('<h2 id="there">x</h2>')
    (tmp_path / "index.html").write_text(
        '<a class=x href="a/#there">1</a><a href=a/#gone>2</a><a href="b/">3</a>'
        '<img src="no.png"><a href="https://x.org/#y">4</a><a href="#self">5</a>'
    )
    found = {link for _, link in check.broken_links(tmp_path)}
    assert found == {"a/#gone", "b/", "no.png", "#self"}


def test_every_public_name_has_a_page_with_its_docstring():
    known = reference.public_names()
    for space in ("callbacks", "layers", "losses", "optimizers", "visualization"):
        listed = getattr(exburn, space).__all__
        assert {
            f"exburn.{space}.{name}" for name in listed if name[0].isupper()
        } <= set(known)
    pages_of = [name.page for name in known.values()]
    homes = {id(name.value): name.page for name in known.values()}
    assert len(set(pages_of)) == len(homes)
    stopping = known["exburn.callbacks.EarlyStopping"]
    text = reference.page(stopping)
    assert text.startswith("# EarlyStopping")
    assert "::: exburn.callbacks.early_stopping.EarlyStopping" in text
    model = reference.page(known["exburn.Model"])
    parts_of_model = re.findall(r"^## (.+)$", model, re.MULTILINE)
    assert parts_of_model[:2] == ["Training", "Predicting"]
    first = re.findall(r"^### (\w+) ", model, re.MULTILINE)[:3]
    assert first == ["compile", "fit", "evaluate"]
    assert "::: exburn.models.fitting.fit\n    options:\n" in model
    dense = reference.page(known["exburn.layers.Dense"])
    assert "`exburn/layers/core/dense.py`, line " in dense
    assert re.search(r"~~~~python\n(@.+\n)*class Dense\(", dense)
    if importlib.util.find_spec("griffe"):  # reads what no source defines by its name
        text = load("docs.site.examples").prepare(inspect.getdoc(exburn.ops.abs))
        page = "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.abs.html"
        assert f"[`jax.numpy.abs`]({page})" in text and "Examples:" in text
        text = reference.page(known["exburn.applications.ResNet50"])
        assert "- `weights` (`" in text  # a function that no source defines by its name
    text = reference.page(known["exburn.ops.abs"])
    assert "::: exburn.ops.elementwise.arithmetic.abs" in text
    assert "exburn.datasets.adapters" not in {path[:24] for path in known}


def test_pages_and_notebooks_lead_to_each_other(tmp_path):
    pages.write(ROOT, tmp_path)
    shown = notebooks.write(ROOT / "notebooks", tmp_path / "notebooks")
    home = (tmp_path / "index.md").read_text()
    assert "](quickstart.md)" in home and "](notebooks/quickstart.md)" in home
    assert "../" not in home
    assert shown[0][0] == "quickstart" and len(shown) == len(dict(shown))
    first = (tmp_path / "notebooks" / "01_mlp_digits.md").read_text()
    assert (
        "```python\n" in first and ".png)" in first and '<pre class="output">' in first
    )


def test_every_name_leads_to_guides():
    found = guides.Guides(ROOT)
    known = reference.public_names()
    for name in {name.path: name for name in known.values()}.values():
        links = found.of(name.path)
        assert 1 <= len(links) <= 4, name.path
        assert all((ROOT / "docs" / p).exists() or "/" in p for _, p in links)
    assert found.of("exburn.callbacks.EarlyStopping")[0] == (
        "Callbacks",
        "callbacks.md",
    )
    page = reference.page(known["exburn.callbacks.EarlyStopping"], found)
    assert "Guides: [Callbacks](../../callbacks.md) · " in page


def test_the_source_is_shown_without_its_docstrings():
    code = (
        'class A:\n    """A.\n\n    See :class:`B`.\n    """\n\n    x = 1\n\n'
        '    def f(self):\n        """F."""\n\n    def g(self):\n        """G."""\n'
        '        return """no docstring"""\n'
    )
    assert reference._without_docstrings(code) == (
        "class A:\n    x = 1\n\n    def f(self):\n        ...\n\n"
        '    def g(self):\n        return """no docstring"""'
    )


def test_layers_stand_in_groups():
    if importlib.util.find_spec("griffe") is None:
        pytest.skip("griffe is not installed")
    known = reference.public_names()
    page = reference._index("exburn.layers", known)
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert titles[:3] == ["Core", "Convolution", "Pooling"]
    rows = re.findall(r"^\| \[`(\w+)`\]", page, re.MULTILINE)
    assert len(rows) == len(set(rows)) and "Dense" in rows
    assert not re.search(r":(func|class|meth|math):", page)
    listed = config._names("exburn.layers", {"Dense": known["exburn.layers.Dense"]})
    assert listed == [{"Core": [{"Dense": "reference/layers/Dense.md"}]}]


def test_no_page_has_roles():
    known = reference.public_names()
    lines = [name.line for name in known.values()]
    assert not [line for line in lines if re.search(r":[a-z]+:`", line)]
    if importlib.util.find_spec("griffe"):
        prepare = load("docs.site.examples").prepare
        text = prepare("See :class:`~a.B`, :py:func:`c`, :math:`x^2` and :kbd:`d`.")
        assert text == "See `a.B`, `c`, `x^2` and `d`."


def test_all_names_of_a_model_have_a_part():
    own = vars(exburn.Model.__base__) | vars(exburn.Model)
    names = [name for name in own if not name.startswith("_")]
    assigned = [name for listed in parts.MODEL.values() for name in listed]
    assert len(assigned) == len(set(assigned)) and set(assigned) <= set(names)


def test_the_search_leads_to_guides_and_methods(tmp_path):
    file = tmp_path / "search.json"
    pages = {page for pages in search._SUBJECTS.values() for page in pages}
    pages |= {f"reference/models/Model/#{name}" for name in search._METHODS}
    items = [
        {"location": page, "title": page.rpartition("#")[2], "text": "", "path": []}
        for page in sorted(pages)
    ]
    code = {"location": "reference/a/#source", "title": "Source", "text": "GPU " * 99}
    late = {"location": "decisions/gpu/", "title": "A GPU", "text": "GPU"}
    file.write_text(json.dumps({"items": [late, code, *items]}))
    assert search.improve(file) == []
    found = json.loads(file.read_text())["items"]
    assert "Source" not in {item["title"] for item in found}
    assert found[-1]["location"] == late["location"]
    of_gpu = [item["location"] for item in found if item["title"] == "GPU"]
    assert of_gpu == ["install/", "distribution/", "faster/"]
    titles = [item["title"] for item in found if item["location"].endswith("#fit")]
    assert titles == ["fit", "Model.fit"]
    file.write_text(json.dumps({"items": items[1:]}))
    assert search.improve(file) == [items[0]["location"]]


def test_the_site_has_its_fonts():
    css = (ROOT / "docs" / "site" / "site.css").read_text()
    fonts = re.findall(r'url\("([^"]+)"\)', css)
    assert len(fonts) == 2
    for font in fonts:
        assert (ROOT / "docs" / "site" / font).read_bytes()[:4] == b"wOF2"
    assert "http" not in css and "font = false" in config._TEMPLATE


def test_outputs_of_a_cell_stand_together(tmp_path):
    outputs = [
        {"output_type": "stream", "text": ["a\n"]},
        {"output_type": "stream", "text": ["b\n"]},
        {"output_type": "display_data", "data": {"text/html": ["<table></table>"]}},
        {"output_type": "execute_result", "data": {"text/plain": ["1 < 2"]}},
    ]
    cell = {"cell_type": "code", "source": ["x"], "outputs": outputs}
    code, shown = notebooks._cells({"cells": [cell]}, "name", tmp_path)
    assert code == "```python\nx\n```"
    assert shown.startswith('<div class="outputs" markdown>')
    assert shown.count("<pre") == 2 and "a\nb" in shown.replace("&#10;", "\n")
    assert shown.index("<table>") < shown.index("1 &lt; 2")
    cell["outputs"] = []
    assert len(notebooks._cells({"cells": [cell]}, "name", tmp_path)) == 1


def test_outputs_keep_the_style_of_exburn_alone():
    page = '<div class="exburn"><style>a{}</style>x</div><style>b{}\n</style>'
    output = {"output_type": "display_data", "data": {"text/html": [page]}}
    (shown,) = notebooks._output(output, "name", None)
    assert "<style>a{}</style>x</div>" in shown and "b{}" not in shown


def test_the_gallery_has_a_card_with_picture_and_question_for_each_notebook(tmp_path):
    shown = notebooks.write(ROOT / "notebooks", tmp_path / "notebooks")
    gallery.write(tmp_path, shown)
    text = (tmp_path / "gallery.md").read_text()
    assert text.count('class="card"') == len(shown)
    for stem, _ in shown:
        assert f'href="notebooks/{stem}.md"' in text  # zensical leads from the page
    pictures = re.findall(r'<img src="(notebooks/[\w.]+)"', text)
    assert len(pictures) >= len(shown) - 3
    assert all((tmp_path / picture).is_file() for picture in pictures)
    questions = re.findall(r"<span>([^<]+)</span>", text)
    assert all(question.strip() for question in questions)
    assert "Which pixels are cell?" in questions


def test_the_table_of_keras_names_has_a_page_for_each_namespace(tmp_path):
    pytest.importorskip("keras")
    table.write(tmp_path / "keras_names", reference.public_names())
    summary = (tmp_path / "keras_names" / "index.md").read_text()
    files = re.findall(r"\]\((keras\w*\.md)\)", summary)
    assert len(files) > 20
    assert all((tmp_path / "keras_names" / file).is_file() for file in files)
    layers = (tmp_path / "keras_names" / "keras_layers.md").read_text()
    assert "| `keras.layers.Dense` | [`exburn.layers.Dense`](../reference/" in layers
    assert "keras.layers.TFSMLayer" in summary  # what ExBurn has not, with the reason


def test_every_page_is_in_the_navigation(tmp_path):
    pages.write(ROOT, tmp_path)
    shown = notebooks.write(ROOT / "notebooks", tmp_path / "notebooks")
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.md")}
    stopping = reference.Name("exburn.callbacks.EarlyStopping", exburn, [], "")
    known = {
        "exburn.callbacks.EarlyStopping": stopping,
        "exburn.EarlyStopping": stopping,
    }
    config.write(tmp_path / "zensical.toml", ROOT, shown, known)
    toml = tomllib.loads((tmp_path / "zensical.toml").read_text("utf-8"))

    def leaves(value):
        inner = value.values() if isinstance(value, dict) else value
        return [value] if isinstance(value, str) else sum(map(leaves, inner), [])

    listed = leaves(toml["project"]["nav"])
    pages_of_names = [page for page in listed if page.startswith("reference/")]
    assert len(listed) == len(set(listed))
    assert (
        set(listed) - set(pages_of_names) - {"keras_names/index.md", "gallery.md"}
        == written
    )
    assert pages_of_names == [
        "reference/exburn/index.md",
        "reference/callbacks/index.md",
        "reference/callbacks/EarlyStopping.md",
    ]


def test_the_site_builds_without_broken_links(tmp_path):
    for package in ("zensical", "mkdocstrings"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    html = load("__main__").build(tmp_path)
    assert check.broken_links(html) == []
    assert (html / "reference" / "callbacks" / "EarlyStopping" / "index.html").exists()
    assert "EarlyStopping" in (html / "search.json").read_text("utf-8")
