"""The documentation site: ``python -m docs.site`` builds it."""
