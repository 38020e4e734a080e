"""The code of README and of every page of docs/ runs as it is written, each page from top to bottom.

By default the pages in `QUICK`, README among them; the other pages take minutes together and run with `-m slow`.
"""

import re
import shlex
from pathlib import Path

import pytest

import bayes_mdp as bm
from bayes_mdp.cli import build_parser, main
from tools import page_outputs
from tools.bibliography import keys
from tools.page_outputs import run_blocks, same_output, with_outputs, write_demo_log

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"README.md", "docs/how-to/routes.md"}
CHANGES = "docs/reference/from-0-2-to-0-3.md"
"""Its first program is of the version before, and warns: a test of its own below."""


def blocks(page, language):
    """The fenced blocks of a language, in the order of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.S | re.M)


def pages(language):
    """Pages that have such blocks; Python that is not quick is for `-m slow`."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = [str(page.relative_to(ROOT)) for page in found if "_build" not in page.parts and blocks(page, language)]
    assert "README.md" in names
    names = [name for name in names if (name, language) != (CHANGES, "python")]
    return [
        pytest.param(name, id=name, marks=[pytest.mark.slow] if language == "python" and name not in QUICK else [])
        for name in names
    ]


@pytest.fixture(scope="module")
def demo_log(tmp_path_factory):
    """Random play on FrozenLake, in the columns of the log that `bayes-mdp demo` writes."""
    path = tmp_path_factory.mktemp("log") / "log.csv"
    write_demo_log(path)
    return path


@pytest.fixture
def workplace(tmp_path, monkeypatch, demo_log):
    """A folder of its own, where the demo has been."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bayes-mdp-demo").mkdir()
    (tmp_path / "bayes-mdp-demo" / "log.csv").write_bytes(demo_log.read_bytes())
    return tmp_path


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution")  # ArviZ, of the demo's log
@pytest.mark.parametrize("name", pages("python"))
def test_every_python_block_runs_and_prints_what_is_stored(name, workplace):
    stored = page_outputs.blocks((ROOT / name).read_text())
    printed = run_blocks([code for code, _ in stored], name)
    assert any(printed)
    for (code, before), now in zip(stored, printed, strict=True):
        if before:
            assert same_output(before, now), f"python tools/page_outputs.py {name}; below {code[-200:]!r}:\n{now}"
    for file, place in page_outputs.pictures((ROOT / name).read_text(), Path(name).stem).items():
        assert (workplace / file).is_file() and place.is_file(), f"python tools/page_outputs.py {name}"


def test_a_program_of_the_last_version_runs_warns_and_prints_what_that_of_today_does(workplace):
    (old, old_output), (new, new_output) = page_outputs.blocks((ROOT / CHANGES).read_text())
    with pytest.warns(FutureWarning) as told:
        (before,) = run_blocks([old], CHANGES)
    assert [re.split(r" is | since", str(warning.message))[:2] for warning in told] == [
        ["bm.inference.save", "bm.save"],
        ["bm.inference.load", "bm.load"],
        ["bm.choose(num_draws=...)", "bm.choose(options=bm.decisions.ChooseOptions(num_draws=...))"],
        ["bm.expected_value_of_perfect_information", "bm.information.expected_regret"],
        ["bm.agents.EveryEpisode", "not listed"],
        ["bm.run(regret=...)", "bm.run(options=bm.experiments.RunOptions(regret=...))"],
        ["bm.plot_regret", "bm.plots.plot_regret"],
    ]
    (after,) = run_blocks([new], CHANGES)  # a warning would be an error
    assert before == after and old_output == new_output and same_output(new_output, after), after


def test_the_shorter_ways_that_the_page_of_changes_names():
    def due(context):
        return context.starts

    words = {"episode": "EveryEpisode", "doubling": "Doubling"}
    with pytest.warns(FutureWarning):
        pairs = [(word, getattr(bm.agents, name)()) for word, name in words.items()]
        pairs += [(20, bm.agents.EverySteps(20)), (due, bm.agents.When(due))]
    for short, rule in pairs:
        assert bm.agents.PSRL(replan=short) == bm.agents.PSRL(replan=rule)
    with pytest.warns(FutureWarning):
        assert bm.agents.RegularisedIDS(2.0) == bm.agents.InformationGain(2.0)
    with pytest.warns(FutureWarning):
        old = bm.envs.deep_sea_stochastic_observed(4)
    assert old.name == bm.envs.deep_sea_observed(4, stochastic=True).name


def test_code_fits_the_width_of_a_page():
    """80 letters: what the site shows without scrolling. Prose between the blocks may be wider.

    The commands that set up everything are one line each, to be copied as one; CI reads them so (.ci/test_command).
    """
    wide = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if "_build" in page.parts or "api" in page.parts:  # the build's own
            continue
        language = ""
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith("```"):
                language = "" if language else line[3:] or "text"
            elif (
                language.startswith(("python", "{code-cell}", "bash"))
                and len(line) > 80
                and not line.startswith("python3 -m venv")
            ):
                wide.append(f"{page.relative_to(ROOT)}:{number}: {line}")
    assert not wide, "\n".join(wide)


def test_outputs_are_stored_below_their_blocks():
    page = "# A\n\n```python\nprint(1)\n```\n\ntext\n\n```python\nx = 1\n```\n\n```bash\nls\n```\n"
    once = with_outputs(page, ["1\n", ""])
    assert once == page.replace("print(1)\n```\n", "print(1)\n```\n\n<!-- printed -->\n```text\n1\n```\n")
    assert [output for _, output in page_outputs.blocks(once)] == ["1\n", ""]
    assert with_outputs(once, ["1\n", ""]) == once and with_outputs(once, ["", ""]) == page
    varies = page.replace("```python\nprint(1)", "<!-- varies -->\n```python\nprint(1)")
    assert with_outputs(varies, ["1\n", ""]) == varies  # times and versions are not stored
    assert run_blocks(["x = 2\nprint(x)", "print(x + 1)  \nprint()"], "page") == ["2\n", "3\n"]


def test_pictures_of_a_page_are_those_that_it_names():
    page = "![a](../images/pages/agents-regret.png) ![b](../images/pages/agents-too-late.png) ![c](../images/demo.png)"
    assert page_outputs.pictures(page, "agents") == {
        "regret.png": page_outputs.PICTURES / "agents-regret.png",
        "too-late.png": page_outputs.PICTURES / "agents-too-late.png",
    }
    assert page_outputs.pictures(page, "agent") == {}


def test_every_stored_picture_is_shown():
    shown = {
        place
        for page in (ROOT / "docs" / "how-to").glob("*.md")
        for place in page_outputs.pictures(page.read_text(), page.stem).values()
    }
    assert shown == set(page_outputs.PICTURES.glob("*.png"))


@pytest.mark.parametrize(
    ("stored", "printed", "same"),
    [
        ("mean 1.23 (2,000 draws)", "mean  1.25 (2000 draws)", True),
        ("mean 1.23", "mean 1.93", False),
        ("mean 12.3", "mean 9.3", False),
        ("mean 1.23", "mode 1.23", False),
        ("a 1", "a 1 2", False),
        ("[-.5, 2e-3]", "[-.52, 1e-3]", True),
    ],
)
def test_outputs_are_compared_by_words_and_numbers(stored, printed, same):
    assert same_output(stored, printed) is same


def commands(page):
    """Every `bayes-mdp ...` of the shell blocks of a page, as a list of words."""
    lines = "\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    calls = [call.strip() for line in lines for call in line.split("&&")]
    return [
        words[1:] for call in calls if (words := shlex.split(call, comments=True)) and words[0].endswith("bayes-mdp")
    ]


@pytest.mark.parametrize("name", pages("bash"))
def test_every_command_parses(name):
    """Sub-command and options exist and are complete: argparse exits on anything else."""
    for words in commands(ROOT / name):
        assert build_parser().parse_args(words)


def test_a_command_that_is_wrong_is_seen(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("```bash\n.venv/bin/bayes-mdp demo --no-such-option\n```\n")
    (words,) = commands(page)
    with pytest.raises(SystemExit):
        build_parser().parse_args(words)


def test_the_shell_line_of_readme_fits_the_log(workplace, capsys):
    (words,) = [words for words in commands(ROOT / "README.md") if words[0] == "fit"]
    assert main(words) == 0
    assert "greedy" in capsys.readouterr().out


def test_local_links_lead_somewhere():
    """Of README and of every page: a link to a file of the checkout names one that is there."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if "_build" in page.parts or "api" in page.parts:
            continue
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_the_version_has_one_source():
    """pyproject.toml reads it from the package; the citation repeats it."""
    assert f"\nversion: {bm.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_every_key_that_is_cited_is_in_the_bibliography():
    cited = re.compile(r"\[([A-Z][A-Za-z0-9]*[0-9]{2}[a-z]?)\]")
    sources = [*(ROOT / "bayes_mdp").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    used = {key for path in sources if "_build" not in path.parts for key in cited.findall(path.read_text())}
    assert used and not used - keys()
