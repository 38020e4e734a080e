"""`expected_gain`: E max_d NB_d - max_d E NB_d, where what is learned about each site is stated.

Each site is in one of four states after the information has come:

- *perfect*: its value is known;
- *mean*: its posterior mean is known, and no more matters: net benefits are of degree one in it;
- *data*: its law has been updated by data of a study, and net benefits are averaged over it;
- *nothing*: it keeps its law. Of degree one, it is at its mean; else net benefits are averaged over its law.

"Averaged" is by inner points that are common to all outer ones, so that their errors cancel in differences. Averages
that are affine in all that is learned are a value and slopes: these alone are averaged, not one number for each outer
point, and with one number that is learned the rest is a closed form. Where no inner points are needed the answer is an
integral over the outer laws alone, and small ones are computed in closed form or by sums and quadrature. All others are
over scrambled Sobol points, in independent replicates that give the error.

Sources: Raiffa and Schlaifer (1961), *Applied Statistical Decision Theory*; Madan et al. (2014), *Strategies for
efficient computation of the expected value of partial perfect information*; Owen (1997), *Scrambled net variance*.
"""

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.decisions.information.closed_form_gain import closed_form_gain
from bayes_mdp.decisions.information.gain_by_points import COPIES, best_of_means, gain_by_points
from bayes_mdp.decisions.information.information_value import InformationValue, Kind
from bayes_mdp.decisions.information.learning_problem import Gain, Learned, LearningProblem
from bayes_mdp.decisions.strategies.decision_model import DecisionModel
from bayes_mdp.decisions.strategies.strategy_draws import net_benefit_weights
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count

PLAIN_POINTS, SLOPE_POINTS, NESTED_POINTS, INNER_POINTS = 1 << 16, 1 << 14, 1 << 12, 64
"""Outer points without inner ones, where slopes are averaged, and with inner points for each; and these."""


def check_sizes(num_draws: int | None, num_inner: int | None) -> None:
    """Numbers of points, or None for the default.

    Raises:
        ValueError: fewer than two, or more than fit in memory. TypeError: no integer.
    """
    for name, number in (("num_draws", num_draws), ("num_inner", num_inner)):
        if number is not None:
            check_count(name, number, 2)
            check_memory(f"{name} is {number}", 8.0 * COPIES * number, "fewer points take less")


def value_of_learning(
    key: PRNGKeyArray,
    model: DecisionModel,
    learned: Learned,
    kind: Kind,
    about: str,
    wtp: float | None,
    sizes: tuple[int | None, int | None],
) -> InformationValue:
    """The gain of what is learned about a model, with its name.

    Args:
        key: of the points.
        model: the belief.
        learned: what information comes.
        kind, about: what the value is called.
        wtp: willingness to pay.
        sizes: outer and inner points, see `expected_gain`.

    Raises:
        ValueError: see `net_benefit_weights`; points that do not fit in memory.
    """
    problem = LearningProblem(model, net_benefit_weights(model.outcomes, wtp), learned)
    gain = expected_gain(host_generator(key), key, problem, *sizes)
    names = model.strategies
    errors = gain.standard_error, gain.numerical_error
    return InformationValue(kind, about, gain.value, *errors, names, names[gain.best], wtp, gain.standing, gain.reason)


def expected_gain(
    rng: np.random.Generator,
    key: PRNGKeyArray,
    problem: LearningProblem,
    num_draws: int | None,
    num_inner: int | None,
) -> Gain:
    """See the module.

    Args:
        rng, key: random numbers of the Sobol points, and of sites without a closed form.
        problem: the model with what is learned.
        num_draws: outer points in all replicates together; None: `PLAIN_POINTS`, `SLOPE_POINTS` or
            `NESTED_POINTS`.
        num_inner: inner points for each outer one, where some are needed; None: `INNER_POINTS`.
    """
    num_draws = num_draws or (PLAIN_POINTS if not problem.nested else SLOPE_POINTS if problem.affine else NESTED_POINTS)
    num_inner = num_inner or INNER_POINTS
    if len(problem.model.strategies) == 1:
        return Gain(0.0, 0.0, 0.0, 0, "exact", "there is one strategy")
    if not (problem.perfect or problem.means or problem.data or problem.drawn_outside):
        best, sure = best_of_means(rng, key, problem, num_draws, num_inner)
        return Gain(0.0, 0.0, 0.0, best, "exact", "no net benefit depends on it" + sure)
    closed = None if problem.nested or problem.drawn_outside else closed_form_gain(problem)
    return gain_by_points(rng, key, problem, num_draws, num_inner) if closed is None else closed
