"""Progress: bars and stages are shown where somebody can see them, after a while, and leave nothing."""

import io
import os
import sys
import threading
import time

import jax
import pytest

from bayes_mdp.utils import progress
from bayes_mdp.utils.progress import Progress, bar_of, is_shown, stage


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def opened(monkeypatch):
    """Opens a terminal in the test itself: pytest's own capture takes the stream back after the fixtures."""
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.setattr(progress, "DELAY", 0.05)
    monkeypatch.setattr(progress, "PERIOD", 0.02)

    def make():
        monkeypatch.setattr(sys, "stderr", Terminal())
        return sys.stderr

    return make


def wait_for(text, terminal):
    end = time.monotonic() + 20
    while text not in terminal.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    assert text in terminal.getvalue()


def test_who_can_see_it(monkeypatch):
    notebook = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    for stream, chosen, shown in (
        (io.StringIO(), "", False),
        (Terminal(), "", True),
        (notebook(), "", True),
        (Terminal(), "off", False),
        (io.StringIO(), "on", True),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv(progress.VARIABLE, chosen)
        assert is_shown() == shown


def test_stages_are_named_together_and_leave_nothing(opened):
    terminal = opened()
    with stage("decide"):
        wait_for("decide [00:0", terminal)
        with stage("infer (nuts)"):
            wait_for("decide: infer (nuts) [00:0", terminal)
        time.sleep(0.1)
        terminal.truncate(0)
        wait_for("decide [00:0", terminal)
        assert "infer" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    assert not [t for t in threading.enumerate() if t.name == "progress"]


def test_what_is_quick_shows_nothing(opened, monkeypatch):
    terminal = opened()
    monkeypatch.setattr(progress, "DELAY", 30.0)
    with stage("quick"), stage("inside"):
        pass
    with bar_of(3, " things") as bar:
        bar.update(3)
    assert not terminal.getvalue()


def test_an_error_ends_the_stage(opened):
    terminal = opened()
    with pytest.raises(ValueError, match="wrong"), stage("fails"):
        wait_for("fails", terminal)
        raise ValueError("wrong")
    assert not [t for t in threading.enumerate() if t.name == "progress"]
    with stage("next"):
        wait_for("next [", terminal)


def test_nothing_is_started_where_nobody_looks(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    with stage("unseen"):
        assert not [t for t in threading.enumerate() if t.name == "progress"]


def test_a_bar_has_a_line_of_its_own(opened):
    terminal = opened()
    with stage("outer"):
        wait_for("outer", terminal)
        with Progress(1, 10) as bar:
            bar._tqdm.delay = 0
            bar.report(score=0.123456)
            terminal.truncate(0)
            bar.advance(5)
            bar._tqdm.refresh()
            wait_for("5.00/10.0", terminal)
            assert "score=0.123" in terminal.getvalue()


def test_a_bar_can_be_switched_off(opened):
    terminal = opened()
    with Progress(1, 10, show=False) as bar:
        time.sleep(0.1)
        bar.advance(10)
    assert not terminal.getvalue()


def test_a_terminal_that_says_it_has_no_columns_is_written_to(monkeypatch):
    """As `script` and some containers make it: tqdm alone writes nothing there."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, os.fdopen(ours, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.delenv(progress.VARIABLE, raising=False)
        monkeypatch.setattr(progress, "DELAY", 0.05)
        assert os.get_terminal_size(stream.fileno()).columns == 0 and is_shown()
        with stage("seen"):
            time.sleep(0.5)
        assert b"seen [00:0" in screen.read(10_000)


@pytest.fixture
def compilations(monkeypatch):
    """What listens to JAX, with nothing seen yet."""
    fresh = progress._Compilations()
    monkeypatch.setattr(progress, "_COMPILATIONS", fresh)
    return fresh


LOWERED, COMPILED = "/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration"


def test_a_long_compilation_is_announced_before_two_seconds(opened, monkeypatch, compilations):
    monkeypatch.setattr(progress, "DELAY", 2.0)
    terminal = opened()
    with stage("infer (nuts)"):
        begun = time.monotonic()
        compilations(LOWERED, 1.2)
        wait_for("infer (nuts): compiling, about 12 s [00:00]", terminal)
        assert time.monotonic() - begun < 2.0
        compilations(COMPILED, 12.0)
        assert compilations.seconds() == 0.0
        terminal.truncate(0)
        wait_for("infer (nuts) [00:0", terminal)


def test_a_short_compilation_is_not_announced(opened, compilations):
    terminal = opened()
    with stage("quick"):
        compilations(LOWERED, 0.001)
        wait_for("quick [", terminal)
        assert "compiling" not in terminal.getvalue()


def test_a_forecast_learns_from_what_has_compiled(compilations):
    assert compilations.seconds() == 0.0
    compilations(LOWERED, 9.0)
    assert compilations.seconds() == pytest.approx(90.0)
    compilations(COMPILED, 20.0)  # two for one from here on: (10 + 20) / (1 + 9)
    compilations(LOWERED, 4.0)
    assert compilations.seconds() == pytest.approx(12.0)
    compilations("/jax/core/compile/jaxpr_trace_duration", 0.1)  # the module was only looked at
    assert compilations.seconds() == 0.0
    compilations(COMPILED, 50.0)  # of a module that this object has not seen: tells nothing
    compilations(LOWERED, 4.0)
    assert compilations.seconds() == pytest.approx(12.0)


def test_jax_tells_of_its_compilations():
    """The names of JAX's events are those that are listened to."""
    progress._listen()
    heard = progress._COMPILATIONS
    lowered, compiled = heard._lowered, heard._compiled
    jax.jit(lambda x: x + time.monotonic())(1.0)
    assert heard._lowered > lowered and heard._compiled > compiled
    assert heard.seconds() == 0.0


def test_a_stage_can_be_switched_off(opened):
    terminal = opened()
    with stage("silent", show=False):
        time.sleep(0.1)
        assert not [t for t in threading.enumerate() if t.name == "progress"]
    assert not terminal.getvalue()
