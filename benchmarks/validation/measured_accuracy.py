"""The variance of a value by each method over the true one: exact, an upper bound, an under-estimate, or refused.

Every method is compared with the variance over many posterior draws (float64) on random problems of four classes. The
stored numbers are in `measured_accuracy.csv`; `measure_accuracy` measures them again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.agents.value_uncertainty import exact, moment_matching, ube
from bayes_mdp.mdp import Discounted, Episodic, Objective
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.planning import solve
from bayes_mdp.utils.progress import Progress
from benchmarks.validation.random_beliefs import CLASSES, REWARDS, random_problem
from benchmarks.validation.scorecard_methods import least_q_max
from benchmarks.validation.stored_tables import records_csv, stored_records

FILE = "measured_accuracy.csv"
NUM_PROBLEMS, NUM_DRAWS, METHOD_DRAWS = 20, 20_000, 4_000
LIMIT = 6.0  # standard errors that may lie between a method that is exact and the truth
_DRAWN = {"exact UBE, unclipped": False, "exact UBE, clipped": True, "by draws": None}
METHODS = (*(f"UBE {form}" for form in ube.FORMS), "moment matching", "exact recursion", *_DRAWN)


@dataclass(frozen=True)
class MethodAccuracy:
    """One method on one class of problems.

    Args:
        method: of `METHODS`.
        problems: of `CLASSES`.
        rewards: on the "pair" or the "outcome".
        verdict: "exact", "upper bound", "under-estimates" or "refused", measured.
        says: the `validity` that the method itself states ("exact", "upper bound", "heuristic"), or "refused".
        least, median, largest: of variance / truth, over the entries of all problems; nan where refused.
        num_problems, num_draws, method_draws: random problems, draws of the truth, draws of methods by draws.
        versions: of what computed it.
    """

    method: str
    problems: str
    rewards: str
    verdict: str
    says: str
    least: float
    median: float
    largest: float
    num_problems: int
    num_draws: int
    method_draws: int
    versions: str


def stored_accuracy() -> list[MethodAccuracy]:
    """The stored table."""
    return stored_records(MethodAccuracy, FILE)


def accuracy_csv(table: Iterable[MethodAccuracy]) -> str:
    """As the text of a CSV file."""
    return records_csv(MethodAccuracy, table)


def describe_accuracy(table: list[MethodAccuracy]) -> str:
    """A table for a person: a block for each class, a line for each method."""
    first = table[0]
    lines = [
        "Variance of a value by each method over the true one: least, median, largest",
        f"{first.num_problems} random problems a line, truth by {first.num_draws} draws, "
        f"methods by draws {first.method_draws}; {first.versions}",
    ]
    for kind in dict.fromkeys(row.problems for row in table):
        block = [row for row in table if row.problems == kind]
        lines += ["", f"{kind}", f"  {'method':<22}{'rewards on':<12}{'measured':<18}{'says':<14}   ratio"]
        lines += [
            f"  {c.method:<22}{c.rewards:<12}{c.verdict:<18}{c.says:<14}{_ratio(c)}"
            for c in sorted(block, key=lambda c: METHODS.index(c.method))
        ]
    return "\n".join(lines)


def _ratio(row: MethodAccuracy) -> str:
    numbers = row.least, row.median, row.largest
    return "" if row.verdict == "refused" else "".join(f"{x:>8.3g}" for x in numbers)


def changed_verdicts(ours: Iterable[MethodAccuracy], stored: Iterable[MethodAccuracy]) -> list[str]:
    """Sentences on verdicts (measured or stated) that differ from the stored ones."""
    expected = {(c.method, c.problems, c.rewards): c for c in stored}
    sentences = []
    for row in ours:
        other = expected[row.method, row.problems, row.rewards]
        for what in ("verdict", "says"):
            if getattr(row, what) != getattr(other, what):
                where = f"{row.method}, {row.problems}, rewards on the {row.rewards}"
                sentences.append(f"{where}: {what} is {getattr(row, what)}, stored is {getattr(other, what)}")
    return sentences


def measure_accuracy(
    *,
    num_problems: int = NUM_PROBLEMS,
    num_draws: int = NUM_DRAWS,
    method_draws: int = METHOD_DRAWS,
    classes: Iterable[str] = CLASSES,
    rewards: Iterable[str] = REWARDS,
    methods: Iterable[str] = METHODS,
) -> list[MethodAccuracy]:
    """Measure the table again. Host side, float64, with a progress bar; the problems are those of seeds 0, 1, 2, ...

    Args:
        num_problems: random problems of each class.
        num_draws: posterior draws that the truth is taken from.
        method_draws: of the methods by draws.
        classes, rewards, methods: of `CLASSES`, `REWARDS` and `METHODS`.
    """
    cases, methods = [(kind, law) for kind in classes for law in rewards], tuple(methods)
    size = (num_problems, num_draws, method_draws)
    table: list[MethodAccuracy] = []
    with jax.enable_x64(True), Progress(1, num_problems * len(cases)) as bar:
        for number, (kind, law) in enumerate(cases):
            tables = []
            for seed in range(num_problems):
                tables.append(_measure(kind, law, seed, methods, (num_draws, method_draws)))
                bar.advance(number * num_problems + seed + 1)
            says = {**_stated(kind, law), **tables[-1].says}
            table += [_row(method, (kind, law), tables, says[method], size) for method in methods]
    return table


class _Measured(NamedTuple):
    """One problem: truth and its relative standard error; method -> variance; method by draws -> its validity."""

    truth: np.ndarray
    error: np.ndarray
    variance: dict[str, np.ndarray]
    says: dict[str, str]


def _measure(kind: str, law: str, seed: int, methods: tuple[str, ...], size: tuple[int, int]) -> _Measured:
    num_draws, method_draws = size
    belief, aim = random_problem(kind, law, seed)
    posterior, objective = to_float64(belief), to_float64(aim)
    key_truth, key_method = jax.random.split(jax.random.fold_in(jax.random.key(seed), CLASSES.index(kind)))
    policy, q_max = _plan(posterior, objective)
    mdps = _sample(jax.random.split(key_truth, num_draws), posterior)
    q = _values(np.asarray(mdps.transition_probs), np.asarray(mdps.reward), np.asarray(policy), aim)
    squares = (q - q.mean(0)) ** 2
    truth = squares.mean(0)
    error = squares.std(0) / np.maximum(truth, 1e-300) / np.sqrt(num_draws)
    problem = key_method, posterior, policy, objective
    answers: dict[str, Any] = {m: _by_draws(m, problem, method_draws) for m in _DRAWN if m in methods}
    variance = {method: answer.q_variance for method, answer in answers.items()}
    variance |= _closed(posterior, policy, objective, q_max)
    firsts = {
        method: np.asarray(x)[0] if isinstance(aim, Episodic) else np.asarray(x) for method, x in variance.items()
    }
    return _Measured(truth, error, firsts, {method: answer.validity.kind for method, answer in answers.items()})


def _forms() -> dict[str, Callable[..., Any]]:
    """The methods in closed form: (posterior, policy, objective, q_max) -> answer."""

    def by_ube(form: str) -> Callable[..., Any]:
        return lambda p, policy, objective, q_max: ube.solve(p, policy, objective, q_max=q_max, form=form)

    return {
        **{f"UBE {form}": by_ube(form) for form in ube.FORMS},
        "moment matching": lambda p, policy, objective, _: moment_matching.value_variance(p, policy, objective),
        "exact recursion": lambda p, policy, objective, _: exact.value_covariance(p, policy, objective),
    }


def _stated(kind: str, law: str) -> dict[str, str]:
    """The validity that each closed form states, without computing anything; "refused" where it raises."""
    posterior, objective = random_problem(kind, law, 1)
    policy = np.zeros(posterior.space.shape[:-1], np.int32)
    said = {}
    for method, form in _forms().items():
        try:
            said[method] = eqx.filter_eval_shape(form, posterior, policy, objective, None).validity.kind
        except ValueError:
            said[method] = "refused"
    return said


@eqx.filter_jit
def _closed(posterior: Any, policy: Any, objective: Objective, q_max: Any) -> dict[str, Array]:
    """q_variance of the closed forms; those that refuse are left out (they do so inside a trace too)."""
    answers = {}
    for method, form in _forms().items():
        try:
            answers[method] = form(posterior, policy, objective, q_max).q_variance
        except ValueError:
            continue
    return answers


def _by_draws(method: str, problem: tuple[Any, ...], num_draws: int) -> Any:
    clip = _DRAWN[method]
    if clip is None:
        return exact.by_draws(*problem, num_draws=num_draws)
    return exact.exact_ube(*problem, num_draws=num_draws, clip=clip)


@eqx.filter_jit
def _plan(posterior: Any, objective: Objective) -> tuple[Array, Float[Array, ""]]:
    """The greedy policy of the mean MDP, and the least q_max that bounds what the equations multiply with a row."""
    policy = solve(posterior.mean_mdp(), objective).policy
    return policy, least_q_max(posterior, policy, objective)


@eqx.filter_jit
def _sample(keys: Any, posterior: Any) -> Any:
    return jax.vmap(posterior.sample)(keys)


def _values(rows: np.ndarray, reward: np.ndarray, policy: np.ndarray, objective: Objective) -> np.ndarray:
    """q [N S A] of the policy in each draw (of the first step), by numpy."""
    states = np.arange(policy.shape[-1])
    if isinstance(objective, Discounted):
        chain = np.eye(len(states)) - objective.discount * rows[:, states, policy]
        v = np.linalg.solve(chain, reward[:, states, policy][..., None])[..., 0]
        return reward + objective.discount * np.einsum("nsaz,nz->nsa", rows, v)
    v, q = np.zeros(reward.shape[:1] + reward.shape[-2:-1]), reward[:, -1]
    for h in reversed(range(policy.shape[0])):
        q = reward[:, h] + np.einsum("nsaz,nz->nsa", rows[:, h], v)
        v = q[:, states, policy[h]]
    return q


def _row(
    method: str, case: tuple[str, str], tables: list[_Measured], says: str, size: tuple[int, int, int]
) -> MethodAccuracy:
    _, num_draws, method_draws = size
    versions = " ".join(f"{name} {version(name)}" for name in ("bayes-mdp", "jax", "numpy"))
    if any(method not in table.variance for table in tables):
        return MethodAccuracy(method, *case, "refused", says, np.nan, np.nan, np.nan, *size, versions)
    share = num_draws / method_draws if method in _DRAWN else 0.0
    ratios, errors = [], []
    for table in tables:
        real = table.truth > 1e-9 * table.truth.max()
        ratios.append((table.variance[method] / np.maximum(table.truth, 1e-300))[real])
        errors.append(table.error[real] * np.sqrt(1 + share))
    ratio = np.concatenate(ratios)
    numbers = float(ratio.min()), float(np.median(ratio)), float(ratio.max())
    return MethodAccuracy(method, *case, judge(ratio, np.concatenate(errors)), says, *numbers, *size, versions)


def judge(ratio: np.ndarray, error: np.ndarray) -> str:
    """The verdict on ratios variance / truth with relative standard errors `error`."""
    if (ratio < 1 - LIMIT * error).any():
        return "under-estimates"
    return "upper bound" if (ratio > 1 + LIMIT * error * np.maximum(ratio, 1.0)).any() else "exact"
