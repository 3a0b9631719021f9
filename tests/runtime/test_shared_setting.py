"""Settings that blocks share are set by the first and taken back by the last."""

import pytest

from exburn.runtime.shared_setting import SharedSetting


def test_the_first_block_begins_and_the_last_ends_also_after_an_error():
    calls = []
    setting = SharedSetting(lambda: calls.append("begin") or 7, calls.append)
    with pytest.raises(KeyError), setting.block():
        with setting.block():
            assert setting.blocks == 2
        assert calls == ["begin"]
        raise KeyError
    assert calls == ["begin", 7] and setting.blocks == 0
    with setting.block():
        assert calls == ["begin", 7, "begin"]
