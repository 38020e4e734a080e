"""The files of the package `icu-sepsis`, read by numpy: the package is not imported (it would import gym)."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.utils.extras import install
from bayes_mdp.utils.validation import check_initial, check_probability_rows, check_shape, require

PACKAGE = "icu_sepsis"
ASSETS = Path("envs", "assets")
DYNAMICS = "dynamics.npz"
ACTION_LISTS = ("admissible_actions.txt", "allowed_actions.txt")  # the second is its name in 1.0
N_ACTIONS = 25
N_LAST = 3  # death, survival, and the state that both lead to for ever


class SepsisFiles(NamedTuple):
    """What the package has of the MDP, over its own states: N - 3 of patients, death, survival, an absorbing one.

    Args:
        rows: [N A N], probabilities of next states; of an inadmissible action the mean of the admissible ones.
        initial: [N], of the first state.
        expert: [N A], how often clinicians chose each action.
        admissible: [N A].
    """

    rows: Float[np.ndarray, "N A N"]
    initial: Float[np.ndarray, " N"]
    expert: Float[np.ndarray, "N A"]
    admissible: Bool[np.ndarray, "N A"]


def find_assets() -> Path:
    """The folder of the files, in the installed package.

    Raises:
        ImportError: it is not installed.
    """
    found = find_spec(PACKAGE)  # of a name without dots: nothing is imported
    folders = [] if found is None else list(found.submodule_search_locations or ())
    if not folders:
        raise ImportError(f"icu_sepsis needs the files of the package icu-sepsis: {install('health')}")
    return Path(folders[0]) / ASSETS


def read_files(folder: Path) -> SepsisFiles:
    """Read and check the files in a folder.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: one cannot be read, or holds something else: arrays of other shapes, rows that do not sum to one,
            actions that do not exist, a patient who can neither die nor survive nor stay a patient.
    """
    path = folder / DYNAMICS
    lists = next((folder / name for name in ACTION_LISTS if (folder / name).is_file()), None)
    if lists is None or not path.is_file():
        missing = DYNAMICS if not path.is_file() else " or ".join(ACTION_LISTS)
        raise FileNotFoundError(
            f"{PACKAGE} has no file {missing} in {ASSETS.as_posix()}, expected one: {install('health')}"
        )
    rows, initial, expert = _arrays(path)
    size = len(rows) if rows.ndim else 0
    if rows.shape != (size, N_ACTIONS, size) or size <= N_LAST:
        expected = f"(N, {N_ACTIONS}, N) (state, action, next state) with N at least {N_LAST + 1}"
        raise ValueError(f"tx_mat of {DYNAMICS} has shape {rows.shape}, expected {expected}")
    check_probability_rows(f"tx_mat of {DYNAMICS}", rows)
    check_initial(initial, size, f"d_0 of {DYNAMICS}")
    check_shape(f"expert_policy of {DYNAMICS}", expert, (size, N_ACTIONS), "state, action")
    check_probability_rows(f"expert_policy of {DYNAMICS}", expert[:-N_LAST])
    admissible = _admissible(lists, size)
    patients = slice(size - N_LAST)
    beyond = rows[patients, :, -1].max(-1)
    require(
        beyond > 0, f"the probability of the last state in tx_mat of {DYNAMICS}", beyond, "0 from a patient's state"
    )
    late = initial[-N_LAST:].sum()
    require(late > 0, f"d_0 of {DYNAMICS} beyond the patients", late, "0: an episode starts with a patient")
    known = np.where(admissible, expert, 0.0)[patients].sum(-1)
    require(known <= 0, f"expert_policy of {DYNAMICS}, summed over admissible actions,", known, "more than 0")
    return SepsisFiles(rows, initial, expert, admissible)


def _arrays(path: Path) -> list[np.ndarray]:
    """`tx_mat`, `d_0`, `expert_policy` as float64; the rewards are not read, since they are known."""
    try:
        # Opened here: numpy would leave a broken file open.
        with path.open("rb") as opened, np.load(opened) as file:
            found: dict[str, Any] = {name: file[name] for name in ("tx_mat", "d_0", "expert_policy") if name in file}
    except (OSError, EOFError, ValueError, TypeError, AttributeError, BadZipFile) as error:
        raise ValueError(
            f"{path.name} of {PACKAGE} cannot be read, expected arrays of numpy: {install('health')}"
        ) from error
    arrays = []
    for name in ("tx_mat", "d_0", "expert_policy"):
        if name not in found:
            raise ValueError(f"{path.name} of {PACKAGE} has no array {name!r}, expected one: {install('health')}")
        if found[name].dtype.kind not in "biuf":
            raise ValueError(f"{name} of {path.name} has dtype {found[name].dtype}, expected real numbers")
        arrays.append(found[name].astype(np.float64, copy=False))
    return arrays


def _admissible(path: Path, size: int) -> Bool[np.ndarray, "N A"]:
    """The lists as a mask. The first line says how many actions each state has, line 1 + s which those of s are."""
    lines = path.read_text(errors="replace").splitlines()
    if len(lines) < size + 1:
        raise ValueError(
            f"{path.name} has {len(lines)} lines, expected {size + 1}: a line of counts, one for each state"
        )
    mask = np.zeros((size, N_ACTIONS), bool)
    counts = _integers(path.name, 1, lines[0], 2**31)
    if len(counts) != size:
        raise ValueError(f"{path.name}, line 1 has {len(counts)} counts, expected {size}, one for each state")
    for state, line in enumerate(lines[1 : size + 1]):
        actions = _integers(path.name, state + 2, line, N_ACTIONS)
        if not actions or len(set(actions)) != counts[state]:
            expected = f"{counts[state]}, as line 1 says," if counts[state] else "at least one"
            raise ValueError(f"{path.name}, line {state + 2} has {len(set(actions))} actions, expected {expected}")
        mask[state, actions] = True
    return mask


def _integers(name: str, number: int, line: str, most: int) -> list[int]:
    """The whole numbers below `most` of a line."""
    words = line.split()
    wrong = next((word for word in words if not (word.isdecimal() and int(word) < most)), None)
    if wrong is not None:
        raise ValueError(f"{name}, line {number} has {wrong[:20]!r}, expected whole numbers from 0 to {most - 1}")
    return [int(word) for word in words]
