"""Windows of tokens that weights are chosen on."""

import numpy as np

import exburn


def test_strings_become_windows_of_tokens():
    def windows(data, tokenizer=None, **options):
        found = exburn.quantizers.AWQConfig(data, tokenizer, **options)
        return exburn.compression.quantization.token_windows(found)[:, 0].tolist()

    class Tokenizer:
        def tokenize(self, text):
            return [ord(c) for c in text]

    size = {"num_samples": 2, "sequence_length": 3}
    expected = [[97, 98, 99], [97, 98, 99]]
    for data in (["abc"], iter([b"abc"]), [np.array(["abc", "abc"])]):
        assert windows(data, Tokenizer(), **size) == expected
    assert windows(["ab"], Tokenizer().tokenize, **size) == [[97, 98, 97], [98, 97, 98]]
    pieces = np.arange(30).reshape(10, 3)  # a window each: they stay whole
    assert windows(pieces, **size) == [[0, 1, 2], [27, 28, 29]]
    assert windows([[1.0, 2.0]], num_samples=1, sequence_length=1) == [[1]]
