"""Whatever is put in place of an argument of a public name, the answer is one sentence of this package."""

import traceback
from itertools import groupby
from pathlib import Path

import pytest

import bayes_mdp
import benchmarks.validation
import reproductions
from bayes_mdp.cli import main
from benchmarks.validation.__main__ import main as main_of_validation
from reproductions.__main__ import main as main_of_reproductions
from tests import bad_calls

PACKAGES = {Path(str(package.__file__)).parent for package in (bayes_mdp, reproductions, benchmarks.validation)}
PROGRAMS = {"reproductions": main_of_reproductions, "validation": main_of_validation}
BY_NAME = {name: list(calls) for name, calls in groupby(bad_calls.bad_calls(), key=lambda call: call.name)}


STRATEGIES = """import numpyro
import numpyro.distributions as dist


def strategies():
    p, q = numpyro.sample("p", dist.Beta(1.0, 2.0)), numpyro.sample("q", dist.Beta(2.0, 2.0))
    return {"a": p, "b": q}
"""


def fault(call: bad_calls.BadCall) -> str | None:
    """What is wrong with the answer to a bad call; None: nothing."""
    if callable(call.value) and getattr(call.value, "__module__", "") == bad_calls.__name__:
        call = call._replace(make=lambda make=call.make, value=call.value: make.func(*make.args[:2], value()))
    try:
        call.make()
    except (ValueError, TypeError, OSError) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = str(error)
        of_system = isinstance(error, OSError) and error.errno is not None  # no such file
        if PACKAGES.isdisjoint(Path(frame.filename).parents) and not of_system:
            return f"raised in {frame.filename}:{frame.lineno}: {type(error).__name__}: {message[:150]}"
        if "\n" in message or not message:
            return f"not one sentence: {message[:150]!r}"
        if not any(word in message for word in call.word.split("|")):
            return f"does not name {call.word!r}: {message[:200]}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    return "accepted"


@pytest.mark.parametrize("name", BY_NAME)
def test_a_bad_argument_gets_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files(tmp_path)
    faults = {str(call): found for call in BY_NAME[name] if (found := fault(call)) is not None}
    assert not faults, "\n".join(f"{call}: {found}" for call, found in faults.items())


def test_every_public_name_is_tried():
    listed = {call.name for call in bad_calls.CALLS}
    exempt = {name for names in bad_calls.EXEMPT.values() for name in names.split()}
    assert not listed & exempt
    assert listed | exempt >= bad_calls.public_names()
    assert sum(map(len, BY_NAME.values())) >= 400


def line_fault(line: list[str], capsys) -> str | None:
    """What is wrong with the answer to a bad command line; None: nothing."""
    try:
        code = PROGRAMS[line[0]](line[1:]) if line and line[0] in PROGRAMS else main(line)
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    written = capsys.readouterr().err
    if code != 2:
        return f"code {code}"
    *usage, last = written.rstrip("\n").split("\n")
    if "Traceback" in written or "error: " not in last or not all(x.startswith(("usage:", " ")) for x in usage):
        return f"wrote {written[-300:]!r}"
    return None


@pytest.mark.parametrize("verb", sorted({line[0] if line else "" for line in bad_calls.bad_lines()}))
def test_a_bad_command_line_gets_one_sentence_and_code_2(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files(tmp_path)
    lines = [line for line in bad_calls.bad_lines() if (line[0] if line else "") == verb]
    faults = {" ".join(line): found for line in lines if (found := line_fault(line, capsys)) is not None}
    assert not faults, "\n".join(f"{line}: {found}" for line, found in faults.items())


def files(folder: Path) -> None:
    """Logs that the command lines name."""
    (folder / "log.csv").write_text("s,a,s2\n0,0,1\n1,1,0\n")
    (folder / "twice.csv").write_text("s,s,a,s2\n0,0,0,1\n")
    (folder / "empty.csv").write_text("")
    (folder / "strategies.py").write_text(STRATEGIES)
    for ending in ("gz", "zip", "xz", "bz2", "csv", "parquet"):
        (folder / f"junk.{ending}").write_bytes(b"\x00\xff no table \n\x80")


def test_there_are_enough_command_lines():
    assert len(list(bad_calls.bad_lines())) >= 150
