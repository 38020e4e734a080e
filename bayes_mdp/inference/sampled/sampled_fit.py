"""`sampled_fit`: the sampled route, with the data as arguments, and what is refused before and after it samples.

Before: rows of the prior that are no probabilities (`check_rows_of_prior`), transitions that the program gives
probability zero (`PossibleOutcomes`), a gradient that is not that of the density. After: rows of the draws
(`check_drawn_rows`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpyro.distributions import biject_to
from numpyro.infer.util import potential_energy

from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import pad_log
from bayes_mdp.inference.draws.chains import trace_latents
from bayes_mdp.inference.draws.methods import NUTS, SVI, Method
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, add_data, conditioned, with_capacity
from bayes_mdp.inference.sampled.recipe import Recipe, recipe_for
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior, after_on_host, from_draws, posterior_after
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_transitions
from bayes_mdp.mdp.space import END
from bayes_mdp.models.isolate import isolated_prior, traced_alone, tracing
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import ROW_SUM_TOLERANCE, first_index


def sampled_fit(prior: Prior, space: StateActionSpace, method: Method) -> Fit[SampledPosterior]:
    """Inference of any program by NUTS, variational inference or Laplace. Host side; nothing is compiled yet.

    Programs that compute the same share one fit.

    Args:
        prior: a NumPyro program, space -> `MDPSpec`.
        space: what is known before any data.
        method: `NUTS(...)`, `SVI(...)` or `Laplace(...)`.

    Raises:
        ValueError: no latent site, two sites of one name or with a name of the library's own, a site to be enumerated.
        TypeError: the program does not return a `MDPSpec`; a method that is none of the records.
    """
    with tracing():
        return _fit_of(recipe_for(isolated_prior(prior), space, method))


STEP = 1e-3
"""Of the difference quotient in `_check_gradient`."""
SLOPE_TOLERANCE = 1e-5
"""Relative."""


@lru_cache(maxsize=64)
def _fit_of(recipe: Recipe) -> Fit[SampledPosterior]:
    nothing = jax.jit(lambda key, data_statistics: from_draws(recipe, recipe.draw_prior(key), data_statistics))

    possible = PossibleOutcomes(recipe.space, lambda batch: _draw(_common(recipe), batch)[0])

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> SampledPosterior:
        # Errors of the program before errors of the data, and both before anything is sampled.
        check_rows_of_prior(recipe)
        if data is None:
            data = no_transitions()
            # Running the program draws from the prior: no algorithm is needed.
            if recipe.drawable:
                return jax.tree.map(np.asarray, nothing(key, statistics_on_host(recipe, data)))
        # A user's own kernel or guide may start where data are possible: it is not judged from prior draws.
        elif not (recipe.improper or recipe.rewards_only or _starts_elsewhere(recipe.method)):
            possible.check(data)
        statistics = statistics_on_host(recipe, data)
        # NUTS accepts by the density itself; an optimiser believes the gradient.
        if not isinstance(recipe.method, NUTS):
            _check_gradient(recipe, statistics)
        posterior = jax.tree.map(np.asarray, after_on_host(recipe, key, statistics))
        check_drawn_rows(recipe, posterior.transition_probs)
        return posterior

    return Fit(recipe.name, recipe.space, recipe.summarise, partial(posterior_after, recipe), on_host)


def _starts_elsewhere(method: Method) -> bool:
    """Whether the user's own kernel or guide decides where to start."""
    return (isinstance(method, NUTS) and method.kernel is not None) or (
        isinstance(method, SVI) and method.guide is not None
    )


def _check_gradient(recipe: Recipe, data_statistics: DataStatistics) -> None:
    """Refuse a program whose gradient is not that of its density (stop_gradient, a derivative of the user's own).

    NUTS stays right with a wrong gradient, since its draws are accepted by the density itself; an optimiser does not.
    Looked at is one direction at two points, so that this is a heuristic.

    Raises:
        ValueError: the slopes differ.
    """
    assert recipe.prior is not None
    model = conditioned(recipe.prior, recipe.space, rewards_only=recipe.rewards_only)
    sites = [site for site in trace_latents(model, data_statistics) if not site["fn"].support.is_discrete]
    rng = np.random.default_rng(0)
    # The shapes of the sites on the unconstrained scale.
    shapes = {site["name"]: biject_to(site["fn"].support).inverse_shape(site["fn"].shape()) for site in sites}

    @jax.jit
    @traced_alone
    def potential(point: Mapping[str, ArrayLike]) -> Float[Array, ""]:
        return jnp.asarray(potential_energy(model, (data_statistics,), {}, point))

    wrong = []
    for _ in range(2):
        # A random point and a random direction on the unconstrained scale.
        point, direction = ({name: rng.normal(size=shape) for name, shape in shapes.items()} for _ in range(2))
        # One forward derivative along the direction.
        _, slope = jax.jvp(potential, (point,), (direction,))
        # Two difference quotients: what they differ by is their own error, of curvature and of rounding.
        measured = [
            sum(sign * potential({n: x + sign * step * direction[n] for n, x in point.items()}) for sign in (1, -1))
            / (2 * step)
            for step in (STEP, 2 * STEP)
        ]
        # The allowed difference: ten times that of the two quotients, and rounding.
        allowed = 10 * abs(measured[0] - measured[1]) + SLOPE_TOLERANCE * (1.0 + abs(slope) + abs(measured[0]))
        wrong.append(bool(abs(slope - measured[0]) > allowed))
    # Both points have to disagree: a kink at one of them is no fault.
    if all(wrong):
        raise ValueError(
            f"prior: the gradient of its density is not what the density itself shows (stop_gradient, or a derivative "
            f"of your own?), so that {type(recipe.method).__name__} would stop elsewhere, expected jax.numpy alone, or "
            "method=NUTS(), which needs no right gradient"
        )


def statistics_on_host(recipe: Recipe, data: Transitions | Counts) -> DataStatistics:
    """`recipe.summarise(data)`, checked, and counted by a program that logs of many lengths share.

    Where single rewards are kept the buffer is filled up to a power of two, so that their algorithms are shared too.

    Raises:
        ValueError, TypeError: data that the space or the prior cannot hold.
    """
    if not isinstance(data, Transitions):
        return recipe.summarise(data)
    # The data are no arguments here: their values are looked into, and nothing is computed.
    with tracing():
        shapes = jax.eval_shape(lambda: recipe.summarise(data))
    empty = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    if not np.size(data.state):
        return empty
    # Padded to a power of two with weights zero: logs of many lengths share one compiled program.
    padded, weight = pad_log(data)
    return _add(recipe, with_capacity(empty, len(weight)), padded, weight)


@partial(jax.jit, static_argnums=0)
def _add(
    recipe: Recipe, data_statistics: DataStatistics, transitions: Transitions, weight: Float[AnyArray, " M"]
) -> DataStatistics:
    law = recipe.statistics_law
    return add_data(data_statistics, transitions, weight, recipe.space, law, by_outcome=recipe.by_outcome)


def no_transitions() -> Transitions:
    """No transitions."""
    whole = np.zeros(0, int)
    return Transitions(whole, whole, np.zeros(0), whole, step=whole)


FEW = 4
"""Draws of the prior whose rows are looked at."""
BATCHES = 16
"""Batches of such draws at most: until one is possible (a factor may rule some out), or allows every transition."""


def check_rows_of_prior(recipe: Recipe) -> None:
    """Refuse a program whose rows are no probabilities, or do not sum to one, in a draw of the prior. Looked at once.

    Chains see a density, which such rows only shift: nothing else would notice. Factors, observations, scales and masks
    move the prior, not the values that its sites can have: draws of the sites are looked at, but for those that a
    factor makes impossible. What cannot be drawn passes here, and is looked at afterwards (`check_drawn_rows`).

    Raises:
        ValueError: names the first wrong row by its labels, and how many are wrong.
    """
    if not (recipe.rewards_only or recipe.improper):
        problem = _problem(_common(recipe))
        if problem:
            raise ValueError(problem)


def check_drawn_rows(recipe: Recipe, rows: Float[np.ndarray, "N *H S A O"]) -> None:
    """Likewise for the rows of posterior draws; rows that are not finite are reported with the chains.

    Raises:
        ValueError: as `check_rows_of_prior`.
    """
    if not recipe.rewards_only:
        problem = _wrong_row(recipe.space, rows[np.isfinite(rows).reshape(len(rows), -1).all(1)], "posterior")
        if problem:
            raise ValueError(problem)


def _common(recipe: Recipe) -> Recipe:
    """The recipe, whatever it is sampled by."""
    return replace(recipe, method=NUTS(num_samples=FEW, num_chains=1))


@lru_cache(maxsize=64)
def _problem(recipe: Recipe) -> str:
    """What is wrong with the rows, in one sentence; empty: nothing."""
    # Batch after batch until one draw is possible under the factors.
    for batch in range(BATCHES):
        rows, possible = _draw(recipe, batch)
        if possible.any():
            return _wrong_row(recipe.space, rows[possible], "prior")
    return ""


def _wrong_row(space: StateActionSpace, draws: Float[np.ndarray, "N *H S A O"], of: str) -> str:
    """What is wrong with the first wrong row of a draw, in one sentence; empty: nothing."""
    for rows in draws:
        rows = np.asarray(rows, np.float64)
        total = rows.sum(-1)
        # By the precision of the program: float32 rows sum to one only to 1e-5 or so.
        tolerance = ROW_SUM_TOLERANCE[str(draws.dtype)]
        impossible = ~(np.isfinite(rows) & (rows >= 0))
        wrong = impossible.any(-1) | ~(np.abs(total - 1.0) <= tolerance)
        # Rows of illegal pairs are never read.
        if space.legal is not None:
            wrong &= np.asarray(space.legal)
        index = first_index(wrong)
        if index is None:
            continue
        *step, state, action = index
        pair = f"state {space.state_names[state]!r}, action {space.action_names[action]!r}"
        pair += f", step {step[0]}" if step else ""
        fault = f"sums to {total[index]:.8g}"
        if impossible[index].any():
            fault = f"holds {rows[index][impossible[index]][0]:.8g}"
        return (
            f"prior: in a draw of the {of} the row transition_probs[{', '.join(map(str, index))}] ({pair}) {fault}, "
            f"expected probabilities that sum to 1 ({wrong.sum()} of {wrong.size} rows are wrong)"
        )
    return ""


def _draw(recipe: Recipe, batch: int) -> tuple[Float[np.ndarray, "N *H S A O"], Bool[np.ndarray, " N"]]:
    """A batch of `FEW` draws of the prior: the rows, and whether each is possible under factors and observations."""
    with jax.enable_x64(True):
        rows, possible = _compile(recipe)(jax.random.fold_in(jax.random.key(0), batch))
        return np.asarray(rows), np.asarray(possible)


@lru_cache(maxsize=64)
def _compile(recipe: Recipe) -> jax.stages.Wrapped:
    def draw(key: PRNGKeyArray) -> tuple[Float[Array, "N *H S A O"], Bool[Array, " N"]]:
        sites = recipe.draw_prior(key, FEW).sites
        return recipe.tables(sites)[0], recipe.possible(sites)

    return jax.jit(draw)


# A chain that starts where the data are impossible sees a log density of minus infinity wherever it looks, and its
# draws mean nothing. Whether a probability is zero for all parameters cannot be read from values: it is looked at in
# draws of the prior, and a transition is refused that has probability zero, in double precision, in all of them. That
# is a heuristic. Probabilities below 1e-308 are rounded to zero, and a program may allow a transition for rare
# parameters alone: a kernel of one's own (`NUTS(kernel=...)`), which may start where the data are possible, is not
# checked.


class PossibleOutcomes:
    """Which outcomes have a positive probability in some draw of the prior. Host-side; draws are made when needed.

    Args:
        space: of the program.
        rows: number of a batch -> [N *H S A O], transition probabilities in N draws of the prior.
    """

    def __init__(self, space: StateActionSpace, rows: Callable[[int], Float[np.ndarray, "N *H S A O"]]) -> None:
        self.space, self._rows = space, rows
        self._possible: Bool[np.ndarray, "*H S A O"] | None = None
        self._batches = self._draws = 0

    def check(self, data: Transitions | Counts) -> None:
        """Refuse data with a transition that is impossible in all draws.

        Args:
            data: of the space.

        Raises:
            ValueError: names the first such row (of counts: the first cell) by its labels; data that the space cannot
                hold. TypeError: likewise.
        """
        if isinstance(data, Transitions):
            check_transitions(data, self.space)
            data = data.with_next_state()
            # Rows without an outcome lie at place O, beyond the table; filled first.
            index = tuple(np.atleast_1d(np.asarray(x)) for x in (*data.cell(self.space), data.outcome(self.space)))
        else:
            index = np.nonzero(np.asarray(data.transitions))
        # Further draws of the prior until every transition is possible in some draw, or there are enough.
        while True:
            possible = np.ones(index[0].shape, bool) if self._possible is None else self._possible[index]
            if self._possible is not None and (possible.all() or self._batches == BATCHES):
                break
            self._look_again()
        place = first_index(~possible)
        if place is not None:
            cell = tuple(int(x[place]) for x in index)
            name = f"data[{place[0]}]" if isinstance(data, Transitions) else f"data.transitions{list(cell)}"
            raise ValueError(self._sentence(name, cell))

    def _look_again(self) -> None:
        rows = self._rows(self._batches)
        self._batches, self._draws = self._batches + 1, self._draws + len(rows)
        # What is not a number is another fault, and is reported as such.
        seen = ~(rows == 0).all(0)
        self._possible = seen if self._possible is None else self._possible | seen

    def _sentence(self, name: str, index: tuple[int, ...]) -> str:
        """The refusal of one transition, by its labels."""
        space = self.space
        *step, state, action, outcome = index
        if space.successors is not None:
            outcome = int(np.broadcast_to(space.successors, (*space.shape, space.n_outcomes))[index])
        reached = (*space.state_names, END)[outcome]
        step_words = f"step {step[0]}, " if step else ""
        step_words += f"state {space.state_names[state]!r}, action {space.action_names[action]!r}, next {reached!r}"
        return (
            f"{name} ({step_words}) has probability zero in each of {self._draws} draws of the prior, expected a "
            "program that allows it, or data without it; if rare parameters allow it, start there: "
            f"NUTS(kernel=lambda model: numpyro.infer.NUTS(model, init_strategy=...)) {see('how-to/write-a-prior')}"
        )
