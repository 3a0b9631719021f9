"""Converters in processes of their own: what becomes of those that fail."""

import json

import pytest

from exburn.errors import ExportError, MissingDependencyError
from exburn.export.converter import require_packages, run_converter, telling_line


def run(tmp_path, body, **job):
    script = tmp_path / "script.py"
    script.write_text(f"import os, sys\ndef run(job, folder, enter):\n    {body}\n")
    return run_converter(script, tmp_path, job, target="the X converter")


def test_a_converter_reports_what_it_found(tmp_path):
    found = run(tmp_path, "return {'answer': job['question']}", question=7)
    assert found["answer"] == 7


def test_a_converter_that_aborts_is_a_typed_error(tmp_path):
    with pytest.raises(ExportError, match="ended by SIGABRT while converting"):
        run(tmp_path, "enter('converting'); os.abort()")


def test_a_converter_that_refuses_says_why(tmp_path):
    said = "loc(x): error: failed to legalize operation 'stablehlo.fft'"
    with pytest.raises(ExportError) as caught:
        run(tmp_path, f"sys.stderr.write({said + chr(10)!r}); raise ValueError('no')")
    assert caught.value.details["cause"] == said


def test_an_end_without_a_result_is_an_error(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps({"done": True}))  # an earlier one
    with pytest.raises(ExportError, match="failed while starting"):
        run(tmp_path, "os._exit(0)")


def test_the_exception_is_told_where_no_operation_is_named():
    assert telling_line("Traceback\n  x\n", "ValueError: no") == "ValueError: no"


def test_packages_are_looked_for_before_any_work():
    with pytest.raises(MissingDependencyError, match=r"exburn\[litert\]"):
        require_packages(["json", "no_such_converter"], "export", "x", "litert")
