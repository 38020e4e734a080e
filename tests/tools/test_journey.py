"""`tools/journey.py`: which files and functions of the package a call passes."""

import numpy as np
import pytest

import bayes_mdp as bm
from tools.journey import PACKAGE, code_lines, journey


def test_functions_of_the_package_alone_are_counted():
    space = bm.StateActionSpace(2, 2)
    found = journey(lambda: (np.linalg.inv(np.eye(2)), space.n_outcomes))
    files = ["mdp/space.py", "utils/modules.py"]  # the property, and how a module looks it up
    assert sorted(map(str, found.functions)) == files
    names = {str(path): [name.split(":")[0] for name in functions] for path, functions in found.functions.items()}
    assert names == {"mdp/space.py": ["StateActionSpace.n_outcomes"], "utils/modules.py": ["Module.__getattribute__"]}
    assert found.lines == sum(code_lines(PACKAGE / file) for file in files)
    assert str(found).startswith("2 files, 2 functions, ")


def test_nothing_is_counted_after_an_error():
    with pytest.raises(ZeroDivisionError):
        journey(lambda: 1 / 0)
    assert journey(lambda: None).functions == {}


def test_comments_blank_lines_and_docstrings_are_no_code(tmp_path):
    file = tmp_path / "file.py"
    lines = ['"""Doc', "", 'more."""', "", "# comment", 'x = """a', 'b"""', "", "def f():", '    """Doc."""']
    file.write_text("\n".join([*lines, "    return (", "        1", "    )", ""]))
    assert code_lines(file) == 6
