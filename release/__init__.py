"""What makes a release: the build backend, the comparison of surfaces, the script.

    python -m release v0.1.0      # from a tag: builds, checks, tries; docs/versions.md

``backend.py`` is what pip and ``python -m build`` call (pyproject.toml names it).
"""
