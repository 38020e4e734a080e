"""The planted faults can be planted, and a fault that no test finds is told from one that is found."""

import ast
from collections import Counter

from tests.planted import FAULTS, PACKAGE, ROOT, Fault, answer


def test_every_fault_can_be_planted():
    """Its text stands once in its file, what replaces it is Python, and its tests are there."""
    for fault in FAULTS:
        sound = (PACKAGE / fault.file).read_text()
        assert sound.count(fault.text) == 1, fault.name
        ast.parse(sound.replace(fault.text, fault.instead))
        assert all((ROOT / "tests" / name).is_file() for name in fault.tests.split()), fault.name
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1


def test_no_folder_is_left_out():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders - {"utils"} <= {fault.file.partition("/")[0] for fault in FAULTS}


def test_what_became_of_a_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of the time
    for folder, name, text in (
        ("bayes_mdp", "__init__.py", ""),
        ("bayes_mdp", "sums.py", "def add(a, b):\n    return a + b\n"),
        ("tests", "test_sums.py", "from bayes_mdp.sums import add\n\n\ndef test_add():\n    assert add(2, 2) == 4\n"),
        ("tests", "test_none.py", ""),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    fault = Fault("sign", "sums.py", "a + b", "a - b", "test_sums.py", "a wrong sign")
    assert answer(tmp_path, fault)[0] == "killed"
    assert answer(tmp_path, fault._replace(instead="a * b"))[0] == "survived"
    assert answer(tmp_path, fault._replace(tests="test_none.py"))[0] == "tests did not run"
    assert answer(tmp_path, fault._replace(text="a / b")) == ("text not there", "")
    assert "a + b" in (tmp_path / "bayes_mdp" / "sums.py").read_text(), "the sound file is put back"
