"""What quantization did to a model: bytes saved, and errors made."""

import numpy as np
import pytest
from tests.compression.quantization.classifier import equal, weights

from exburn.quantizers import QuantizationReport


def test_summary_shows_dtypes_and_bytes(trained):
    lines = []
    trained.quantize("int8").summary(print_fn=lambda text, **_: lines.append(text))
    text = "\n".join(lines)
    assert "int8, float32" in text and "Trainable params: 0 (0 B)" in text
    assert f"Total params: {trained.count_params():,} (" in text
    small = trained.quantize("int4")
    assert small.count_params() == trained.count_params()


def test_the_report_tells_bytes_and_errors(trained, data):
    before = weights(trained)
    plain = trained.quantize("int8", dry_run=True)
    report = trained.quantize("int8", calibration=data[0], dry_run=True)
    assert isinstance(report, QuantizationReport) and equal(weights(trained), before)
    assert [row.path for row in report.layers] == ["hidden", "head"]
    hidden = report.layers[0]
    assert (hidden.kind, hidden.scheme) == ("Dense", "int8")
    assert hidden.bytes_before == 4 * (64 * 96 + 96)
    assert hidden.bytes_after == 64 * 96 + 2 * 96 + 4 * 96
    assert report.bytes_before == sum(v.nbytes for v in before.values())
    assert report.left_alone[0].reason == "normalization stays in float32"
    assert report.calibrated and not plain.calibrated
    assert plain.mean_error is None
    # the output's error is what predict shows
    small = trained.quantize("int8")
    exact, found = (m.predict(data[0], verbose=0) for m in (trained, small))
    size = np.sqrt((exact**2).mean())
    assert report.mean_error == pytest.approx(
        np.abs(found - exact).mean() / size, rel=1e-3
    )
    assert report.worst_error == pytest.approx(
        np.abs(found - exact).max() / size, rel=1e-3
    )
    # a layer's error is measured on the exact model's inputs
    kernel = small.get_layer("hidden").kernel.numpy()
    own = trained.get_layer("hidden")
    want = np.maximum(data[0] @ own.kernel.numpy() + own.bias.numpy(), 0)
    got = np.maximum(data[0] @ kernel + own.bias.numpy(), 0)
    assert hidden.mean_error == pytest.approx(
        np.abs(got - want).mean() / np.sqrt((want**2).mean()), rel=1e-3
    )
    text = str(report)
    assert "normalization stays in float32" in text and "Model's output" in text
    weight = plain.layers[0]
    assert 0 < weight.mean_error < weight.worst_error < 0.03


def test_the_report_has_keras_names(trained, capsys):
    small = trained.quantize("int8", filters="hidden", verbose=True)
    report = small.quantization_report
    assert report.render() in capsys.readouterr().out
    trained.quantize("int8", dry_run=True)
    assert not capsys.readouterr().out
    assert report.mode == "int8" and report.quantized == [("hidden", "int8", "int8")]
    assert (report.num_quantized, report.num_skipped) == (1, 2)
    assert set(report.skipped_by_reason(report.SKIP_FILTERED)) == {"norm", "head"}
    assert report.summary_warning() is None
    whole = trained.quantize("int8").quantization_report
    assert whole.skipped == [("norm", whole.SKIP_NO_SUPPORT)]
    assert "1 layers" in whole.summary_warning() and "'norm'" in whole.summary_warning()


def test_a_report_may_be_filled_by_hand():
    report = QuantizationReport("int4")
    for path in "abcdef":
        report.add_skipped(path, report.SKIP_NO_SUPPORT)
    report.add_quantized("g", "int4", "int4_from_float32")
    warning = report.summary_warning(max_examples=2)
    assert "'a', 'b', …" in warning and "'c'" not in warning
    assert report.quantized == [("g", "int4", "int4_from_float32")]
    assert "int4" in report.render() and report.num_skipped == 6


def test_the_summary_of_layers_in_few_bits(trained, capsys):
    small = trained.quantize("int8")
    text = small.quantization_summary()
    assert capsys.readouterr().out.strip() == text.strip()
    stored = sum(layer.kernel.nbytes for layer in (small.layers[0], small.layers[2]))
    exact = 4 * (64 * 96 + 96 * 3)
    assert f"{exact:,} → {stored:,} bytes" in text and "hidden" in text
    assert "norm" not in text
    assert "No layer" in trained.quantization_summary(verbose=False)
    assert not capsys.readouterr().out
