"""What a merge tells a replica that lags, as it stands on the feedback topic."""

import pytest

from lmerge.errors import UsageError
from lmerge.signals import Signal


def test_a_signal_comes_back_and_fields_of_a_newer_writer_do_no_harm() -> None:
    signal = Signal(id="m/0/7", input="r2", partition=0, before=26)
    assert signal.encode() == b'{"kind":"fast-forward","id":"m/0/7","input":"r2","partition":0,"before":26}'
    assert Signal.decode(signal.encode()) == signal
    assert Signal.decode(signal.encode()[:-1] + b',"why":"lag"}') == signal


def test_a_signal_says_which_merge_of_its_name_it_is_of() -> None:
    signal = Signal(id="m/0/7", input="r2", partition=0, before=26, merge_id="6f0c1b")
    assert signal.encode().endswith(b',"before":26,"merge_id":"6f0c1b"}')
    assert Signal.decode(signal.encode()) == signal


@pytest.mark.parametrize("value", [None, b"", b"[]", b'{"kind":"rewind"}', b'{"kind":"fast-forward","id":"x"}'])
def test_what_is_no_signal_is_refused(value: bytes | None) -> None:
    with pytest.raises(UsageError, match="no signal"):
        Signal.decode(value)
