"""The configuration of zensical, with the order of the pages."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from docs.site.parts import groups_of, in_parts
from docs.site.reference import Name, folder_of

_TUTORIALS = (
    "quickstart 01_mlp_digits 02_colour_augmentation 05_text_classification "
    "06_language_model 11_transfer_by_freezing 14_structured_data"
).split()
_HOW_TO = [
    ("Data", "data"),
    ("Data sets", "datasets"),
    ("Choose a loss", "choose_loss"),
    ("Imbalanced classes", "imbalanced"),
    ("Callbacks", "callbacks"),
    ("Find settings, look into a run", "finding"),
    ("What a prediction rests on", "explanations"),
    ("Rows that act on a prediction", "influence"),
    ("How far predictions can be believed", "uncertainty"),
    ("Private training", "privacy"),
    ("Differential equations", "differential_equations"),
    ("Runs, dashboard, loggers, commands", "runs"),
    ("Own layers, losses, loops", "custom_layers"),
    ("Save and load", "saving"),
    ("Resume", "checkpoints"),
    ("Pretrained models", "pretrained"),
    ("Fine-tune", "fine_tuning"),
    ("LoRA", "lora"),
    ("Precision", "precision"),
    ("Pruning", "pruning"),
    ("Quantization", "quantization"),
    ("Small models", "compression"),
    ("Text", "text"),
    ("Language models", "language_models"),
    ("Export: ONNX, LiteRT, Core ML", "export"),
    ("Deploy: in the process", "serving"),
    ("Deploy: a server", "server"),
    ("Many devices", "distribution"),
    ("Sweeps", "sweep"),
    ("Gradients, devices, compute", "compute"),
    ("Troubleshooting", "troubleshooting"),
    ("Go faster", "faster"),
]
_EXPLANATION = [
    ("Reproducibility", "reproducibility"),
    ("Reliability", "reliability"),
]
_BENCHMARKS = [
    ("Summary", "benchmarks"),
    ("Training", "benchmarks/training"),
    ("Several GPUs", "benchmarks/devices"),
    ("Many models at once", "benchmarks/sweeps"),
    ("Prediction and serving", "benchmarks/prediction"),
    ("Starts and files", "benchmarks/starts"),
    ("Small models", "benchmarks/small_models"),
    ("Language models", "benchmarks/language"),
    ("Insight", "benchmarks/insight"),
]
_PROJECT = [
    ("Versions and releases", "versions"),
    ("Security", "security"),
    ("Changelog", "changelog"),
]
_CONTRIBUTORS = [
    ("Contributing", "contributing"),
    ("Layout", "layout"),
    ("Design", "design"),
    ("How fit runs", "planning"),
]
_FEATURES = [
    "content.code.copy",
    "navigation.footer",
    "navigation.indexes",
    "navigation.instant",
    "navigation.prune",  # else each of 1,400 pages lists all of them
    "navigation.tabs",
    "navigation.top",
    "search.highlight",
    "toc.follow",
]


def write(
    target: Path, root: Path, shown: list[tuple[str, str]], names: dict[str, Name]
) -> None:
    """Writes ``zensical.toml``.

    Args:
        target: The file.
        root: The checkout, where mkdocstrings finds the package.
        shown: ``(stem, title)`` of the notebooks.
        names: The public names by path.
    """
    target.write_text(
        _TEMPLATE.format(
            root=root.as_posix(),
            nav=_value(_nav(root, shown, names)),
            features=_value(_FEATURES),
        ),
        encoding="utf-8",
    )


def _nav(root: Path, shown: list[tuple[str, str]], public: dict[str, Name]) -> list:
    titles = dict(shown)
    decisions = sorted((root / "docs" / "decisions").glob("*.md"))
    reference = [
        {
            space: [
                f"reference/{folder_of(space)}/index.md",
                *_names(space, {name.short: name for name in names}),
            ]
        }
        for space, names in _by_home(public).items()
    ]
    return [
        {"Home": "index.md"},
        {
            "Start": _pages(
                [
                    ("Install", "install"),
                    ("Quickstart", "quickstart"),
                    ("Why ExBurn?", "why"),
                    ("A learning path", "learning_path"),
                    ("Cheat sheet", "cheat_sheet"),
                    ("Questions often asked", "faq"),
                ]
            )
            + [{"All pages": "all_pages.md"}]
        },
        {
            "Tutorials": [
                *({titles[stem]: f"notebooks/{stem}.md"} for stem in _TUTORIALS),
                {
                    "Gallery": [
                        {"All, with pictures": "gallery.md"},
                        *(
                            {title: f"notebooks/{stem}.md"}
                            for stem, title in shown
                            if stem not in _TUTORIALS
                        ),
                    ]
                },
            ]
        },
        {
            "Migrate": _pages(
                [
                    ("Keras in twenty minutes", "migrate_keras"),
                    ("PyTorch", "migrate_pytorch"),
                    ("Lightning and fastai", "migrate_lightning"),
                    ("scikit-learn", "migrate_scikit_learn"),
                    ("flax and optax", "migrate_flax"),
                    ("Keras: all differences", "from_keras"),
                    ("Keras: names and packages", "from_keras/names"),
                    ("Keras: models and layers", "from_keras/models"),
                    ("Keras: training", "from_keras/training"),
                    ("Keras: data, files, devices", "from_keras/data_and_files"),
                    ("Keras: name by name", "keras_names/index"),
                    ("Elixir", "from_exburn"),
                ]
            )
        },
        {"How-to": _pages(_HOW_TO)},
        {"Explanation": _pages(_EXPLANATION)},
        {"Reference": [{"Variables of the environment": "variables.md"}, *reference]},
        {
            "Project": [
                {"Benchmarks": _pages(_BENCHMARKS)},
                *_pages(_PROJECT),
            ]
        },
        {
            "Contributors": [
                *_pages(_CONTRIBUTORS),
                {"Decisions": [f"decisions/{path.name}" for path in decisions]},
            ]
        },
    ]


def _names(space: str, names: dict[str, Name]) -> list[dict[str, object]]:
    """The pages of a namespace, in groups if its docstring has some."""
    pages = {short: {short: f"reference/{name.page}"} for short, name in names.items()}
    groups = groups_of(inspect.getdoc(importlib.import_module(space)) or "")
    if not groups:
        return [*pages.values()]
    divided = in_parts(pages, groups)
    return [{title: [pages[name] for name in listed]} for title, listed in divided]


def _by_home(public: dict[str, Name]) -> dict[str, list[Name]]:
    """The names by namespace; each is where its page is, and nowhere else."""
    spaces: dict[str, list[Name]] = {
        path.rpartition(".")[0]: [] for path in sorted(public)
    }
    for name in {name.path: name for name in public.values()}.values():
        spaces[name.path.rpartition(".")[0]].append(name)
    return {
        space: sorted(names, key=lambda name: name.short.lower())
        for space, names in spaces.items()
    }


def _pages(listed: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{title: f"{stem}.md"} for title, stem in listed]


def _value(value: object) -> str:
    """A list or a table of texts as TOML."""
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items())
            + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


_TEMPLATE = """\
[project]
site_name = "ExBurn"
site_description = "A Keras-style deep-learning framework whose programs are JAX."
docs_dir = "source"
site_dir = "html"
use_directory_urls = true
nav = {nav}
extra_css = ["site.css"]

[project.theme]
features = {features}
font = false  # site.css has the fonts, which the site itself serves

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Light"

[project.plugins.mkdocstrings.handlers.python]
paths = ["{root}"]

[project.plugins.mkdocstrings.handlers.python.options]
docstring_style = "google"
docstring_section_style = "list"  # on a phone, too
show_root_heading = false
show_root_toc_entry = false
show_source = false
show_bases = false
show_symbol_type_heading = true
members_order = "source"
inherited_members = false
separate_signature = true
line_length = 88
heading_level = 2
extensions = ["{root}/docs/site/examples.py"]
docstring_options = {{ warnings = false }}
filters = ["!^_"]

[project.markdown_extensions.toc]
permalink = true
slugify = {{ object = "pymdownx.slugs.slugify", kwds = {{ case = "lower" }} }}

[project.markdown_extensions.pymdownx.highlight]
anchor_linenums = true

[project.markdown_extensions.pymdownx.inlinehilite]

[project.markdown_extensions.pymdownx.superfences]

[project.markdown_extensions.admonition]

[project.markdown_extensions.attr_list]

[project.markdown_extensions.md_in_html]

[project.markdown_extensions.tables]
"""
