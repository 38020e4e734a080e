"""`ready_made`: the belief of a ready prior (`bayes_mdp.models`) before any data, from its hyperparameters.

The closed form that `detection` would find in the program, array by array: every row of the law is a row of the site
`transition`, every cell of the rewards one of the site `reward`.
"""

import hashlib
import math
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows, dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import Rewards, known_rewards
from bayes_mdp.inference.conjugate.site_table import SiteTable, site_rows
from bayes_mdp.inference.enumerated import MAX_NUMBERS, Branches, branches_of
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.inference.families.normal import NormalBelief, NormalGammaBelief
from bayes_mdp.inference.families.poisson import GammaBelief
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import program_cache
from bayes_mdp.models.dirichlet_prior import row_concentrations
from bayes_mdp.models.isolate import isolated_prior
from bayes_mdp.models.mdp_spec import Prior, broadcast_to_cells, known_by_outcome
from bayes_mdp.models.priors import ClosedForm, ClosedForms, closed_form_of, ready
from bayes_mdp.numerics.array_forms import compact
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_positive

Sites = dict[str, tuple[int, ...]]
"""Site -> shape, in the order of the program."""


@dataclass(frozen=True, eq=False)
class ReadyMade:
    """A ready prior of a space; equal ones have one `fingerprint`.

    Args:
        prior: with its own copies of the arrays, where it holds any.
        form: its closed form.
        space: sizes, names, masks.
        fingerprint: of the form and of the space.
    """

    prior: Prior
    form: ClosedForm
    space: StateActionSpace
    fingerprint: str

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReadyMade) and self.fingerprint == other.fingerprint


def ready_made(prior: Prior, space: StateActionSpace) -> ConjugatePosterior | Branches | None:
    """The belief before any data, one for each value of a discrete site where there is one; None: `prior` is no ready
    one with a closed form. Made once for equal ones.

    Raises:
        ValueError: hyperparameters that do not fit the space.
    """
    form = closed_form_of(prior)
    if form is None:
        return None
    forms = form.forms if isinstance(form, ClosedForms) else (form,)
    if len(forms) > 1 and len(forms) * math.prod((*space.shape, space.n_outcomes)) > MAX_NUMBERS:
        return None
    has_arrays = any(isinstance(value, np.ndarray) for each in forms for value in each.numbers)
    with jax.enable_x64(True):
        # Its form goes with it, with copies of its arrays: who infers again with this program needs no proof either.
        copied = form._replace(forms=tuple(map(_copied, forms))) if isinstance(form, ClosedForms) else _copied(form)
        own = ready(isolated_prior(prior), copied) if has_arrays else prior
    each = [ReadyMade(own, one, space, _digest(one, space)) for one in forms]
    if not isinstance(form, ClosedForms):
        return _belief(each[0])
    digest = hashlib.sha256(f"{form.site} {len(each)} {' '.join(one.fingerprint for one in each)}".encode())
    return branches_of(own, digest.hexdigest(), form.site, range(len(each)), [_belief(one) for one in each])


def _copied(form: ClosedForm) -> ClosedForm:
    # Not by jax.tree.map, which sorts a dictionary by name: the order of the hyperparameters says what they are.
    def copy(value: ArrayLike) -> ArrayLike:
        return value.copy() if isinstance(value, np.ndarray) else value

    numbers = {name: copy(value) for name, value in form.hyperparameters.items()}
    return form._replace(concentration=copy(form.concentration), hyperparameters=numbers)


def _digest(form: ClosedForm, space: StateActionSpace) -> str:
    digest = hashlib.sha256(f"{space!r} {form.rewards} {form.by_outcome} {tuple(form.hyperparameters)}".encode())
    for value in (*jax.tree.leaves(space), *form.numbers):
        array = np.asarray(value)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


@program_cache
def _belief(ready: ReadyMade) -> ConjugatePosterior:
    sites: Sites = {}
    with jax.enable_x64(True):
        rows, elements = _rows(ready.form, ready.space, sites)
        start = sum(int(np.prod(shape)) for shape in sites.values())
        rewards, cells = _rewards(ready.form, ready.space, sites, start)
        size = sum(int(np.prod(shape)) for shape in sites.values())
        table = SiteTable(tuple(sites.items()), site_rows(elements, size), cells, None, ready.prior)
        return conjugate_posterior(rows, rewards, ready.space, table)


def _rows(form: ClosedForm, space: StateActionSpace, sites: Sites) -> tuple[DirichletRows, Int[np.ndarray, "M K"]]:
    """The belief about the rows, and which element of the sites is which of its concentrations."""
    concentration, possible = row_concentrations(form.concentration, space)
    shape = possible.shape
    if (possible.sum(-1) == 1).all():
        # Known rows; the belief about them has one row that nothing uses.
        none = np.full(shape, -1)
        rows = dirichlet_rows(np.eye(1, shape[-1]), shape, row=none[..., 0], column=none, known=possible.astype(float))
        return rows, np.full((1, shape[-1]), -1)
    # An illegal pair that stays where it is may have no concentration there.
    positive = np.where(possible & (np.asarray(concentration) <= 0), 1.0, np.asarray(concentration))
    prior = np.where(possible, positive, 0.0).reshape(-1, shape[-1])
    check_positive("prior: transition.concentration", np.where(possible, positive, 1.0))
    sites["transition"] = shape
    return dirichlet_rows(prior, shape, sites=(("transition", shape[:-1]),)), np.arange(prior.size).reshape(prior.shape)


def _rewards(
    form: ClosedForm, space: StateActionSpace, sites: Sites, start: int
) -> tuple[Rewards, tuple[Int[np.ndarray, " L"], ...]]:
    """The belief about the rewards; for each of their parameters, the elements behind the cells."""
    if form.rewards == "known":
        reward = form.hyperparameters["reward"]
        by_outcome = known_by_outcome(np.shape(reward), space)
        return known_rewards(broadcast_to_cells("reward", reward, space, by_outcome), by_outcome=by_outcome), ()
    by_outcome = bool(form.by_outcome)
    names = form.hyperparameters.items()
    numbers = [np.asarray(broadcast_to_cells(name, value, space, by_outcome)) for name, value in names]
    shape = numbers[0].shape
    number = np.arange(numbers[0].size)
    paired = form.rewards == "normal_gamma"
    sites["reward"] = (*shape, 2) if paired else shape
    # Mean and precision of a normal-gamma lie side by side.
    elements = (start + 2 * number, start + 2 * number + 1) if paired else (start + number,)
    return reward_cells(
        _reward_belief(form, numbers), shape, by_outcome=by_outcome, sites=(("reward", shape),)
    ), elements


def _reward_belief(form: ClosedForm, numbers: list[Float[np.ndarray, "*cells"]]) -> RewardBelief:
    if form.rewards != "normal":
        families = {"normal_gamma": NormalGammaBelief, "bernoulli": BetaBelief, "poisson": GammaBelief}
        return families[form.rewards](*numbers)
    loc, scale, noise_scale = numbers
    # By way of the precisions that the program states, so that the numbers are those of `detection` to the last bit:
    # NumPy's power of an array differs there from that of C, by which known numbers are computed in it.
    small = compact(noise_scale)
    with np.errstate(over="ignore", divide="ignore"):
        precision = scale.ravel() ** -2.0
        noise = np.broadcast_to(np.reshape([x**-2.0 for x in small.ravel()], small.shape), scale.shape)
        check_positive("prior: reward.precision", precision)
        return NormalBelief(loc.ravel(), precision**-0.5, noise.ravel() ** -0.5)
