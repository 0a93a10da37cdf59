"""A signal is a note that the loop reads, and never an error in the middle of an update."""

import os
import signal

import pytest

from nmt.training.signals import STOPPING, stop_signals


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_is_noted_though_stderr_is_a_pipe_without_a_reader(number: signal.Signals) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stderr = os.dup(2)
    os.dup2(writer, 2)
    try:
        with stop_signals() as stop:
            signal.raise_signal(number)
    finally:
        os.dup2(stderr, 2)
        for descriptor in (writer, stderr):
            os.close(descriptor)
    assert stop.code == 128 + number
