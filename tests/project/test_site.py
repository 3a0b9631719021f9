"""The documentation site: what is gathered, and that links lead somewhere."""

import importlib.util
import inspect
import tomllib

import pytest
from tests.checkout import ROOT, load

import exburn

check, config, notebooks, pages, reference = (
    load(f"docs.site.{name}")
    for name in ("check", "config", "notebooks", "pages", "reference")
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
    assert "## fit\n\n::: exburn.models.fitting.fit\n" in model
    if importlib.util.find_spec("griffe"):  # reads what no source defines by its name
        text = load("docs.site.examples").prepare(inspect.getdoc(exburn.ops.abs))
        page = "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.abs.html"
        assert f"[`jax.numpy.abs`]({page})" in text and "Examples:" in text
        text = reference.page(known["exburn.applications.ResNet50"])
        assert "- `weights`: " in text  # a function that no source defines by its name
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


def test_outputs_keep_the_style_of_exburn_alone():
    page = '<div class="exburn"><style>a{}</style>x</div><style>b{}\n</style>'
    output = {"output_type": "display_data", "data": {"text/html": [page]}}
    (shown,) = notebooks._output(output, "name", None)
    assert "<style>a{}</style>x</div>" in shown and "b{}" not in shown


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
    assert set(listed) - set(pages_of_names) - {"keras_names.md"} == written
    assert pages_of_names == [
        "reference/exburn/index.md",
        "reference/callbacks/index.md",
        "reference/callbacks/EarlyStopping.md",
    ]


@pytest.mark.slow
@pytest.mark.longest
def test_the_site_builds_without_broken_links(tmp_path):
    for package in ("zensical", "mkdocstrings"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    html = load("__main__").build(tmp_path)
    assert check.broken_links(html) == []
    assert (html / "reference" / "callbacks" / "EarlyStopping" / "index.html").exists()
    assert "EarlyStopping" in (html / "search.json").read_text("utf-8")
