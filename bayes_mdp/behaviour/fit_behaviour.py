"""`fit`: the posterior of the parameters of persons and of their group.

The hierarchical model of a group as a NumPyro program; its posterior by NUTS; and the likelihood of a person with the
person's own parameters integrated out under the law of the group.
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpyro.distributions import constraints

from bayes_mdp.behaviour.behaviour_model import BehaviourModel, check_model
from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.behaviour.jumps import refuse_jumps
from bayes_mdp.behaviour.likelihood import action_log_likelihood, check_possible, of_choices, policy_log_probs
from bayes_mdp.inference.draws.chains import Chains, effective_size, run_chains, split_r_hat, warn_of
from bayes_mdp.inference.draws.methods import NUTS, check_sampler
from bayes_mdp.numerics.products import einsum
from bayes_mdp.utils.layout import Part, Section, Table, as_html, as_text
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_count, check_key, check_name, check_type

if TYPE_CHECKING:
    import pandas as pd


Pooling: TypeAlias = Literal["partial", "none", "complete"]
"""What persons share: a normal law on the line, nothing, or everything."""
POOLINGS = ("partial", "none", "complete")
_SHOWN_SUBJECTS = 5
_INFLATION = 1.2
"""How much wider the proposals of `subject_log_likelihood` are than the normal approximation."""


class Choices(dist.Distribution):
    """The actions of a log: `log_probs` [P T A] of each, given the person's past.

    `observed` [P T]: where it is false an action has log-probability 0.
    """

    pytree_data_fields = ("log_probs", "observed")

    def __init__(self, log_probs: Float[Array, "P T A"], observed: Bool[Array, "P T"]) -> None:
        self.log_probs, self.observed = log_probs, observed
        super().__init__(batch_shape=log_probs.shape[:-1], validate_args=False)

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        """Indices of actions."""
        return constraints.nonnegative_integer  # type: ignore[return-value]

    def sample(  # type: ignore[override]
        self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()
    ) -> Int[Array, "*sample P T"]:
        """One action of each choice, one step ahead."""
        return jax.random.categorical(key, self.log_probs, shape=(*sample_shape, *self.batch_shape))

    def log_prob(self, value: Int[AnyArray, "*sample P T"]) -> Float[Array, "*sample P T"]:  # type: ignore[override]
        """Of the actions `value`."""
        return of_choices(self.log_probs, value, self.observed)


def numpyro_model(model: BehaviourModel, log: ChoiceLog, pooling: Pooling = "partial") -> Callable[..., None]:
    """The joint law of the parameters of all persons and their choices, as a NumPyro program.

    Sites, for each parameter `name` of the model (see `Parameter` for the map from the line and for the priors):

    | pooling | sites |
    |---|---|
    | "partial" | `name_mean`, `name_sd`: of the group, on the line; `name_z` [P]: standard normal (non-centred) |
    | "none" | `name_line` [P]: each person's own value on the line |
    | "complete" | `name_line`: one value for all |

    `name` is deterministic, in its support: [P], or one number under "complete". The plate of the persons is "subject";
    "choice" are the observed actions, [P T] in the plates "subject" and "record".

    Args:
        model: see `BehaviourModel`.
        log: the choices.
        pooling: what persons share.

    Returns:
        A program of one optional argument, a `ChoiceLog` of the same shape in place of `log`, and of the keyword
        `predict`: True draws the choices anew, one step ahead (for `numpyro.infer.Predictive`).

    Raises:
        ValueError, TypeError: an argument that is none of these.
    """
    check_model(model)
    check_type("log", log, ChoiceLog, "a ChoiceLog")
    check_name("pooling", pooling, POOLINGS)
    default = log

    def program(log: ChoiceLog = default, *, predict: bool = False) -> None:
        persons, records = log.state.shape
        values = {}
        for name, parameter in model.parameters.items():
            # On the line, where the group is normal; then in the support.
            line = _line(name, parameter.group_mean, parameter.group_sd, persons, pooling)
            values[name] = numpyro.deterministic(name, parameter.constrain(line))
        by_person = {name: jnp.broadcast_to(x, (persons,)) for name, x in values.items()}
        law = Choices(policy_log_probs(model, by_person, log), jnp.asarray(log.observed))
        # All choices as one site with their log-probabilities: NUTS then needs one gradient through one scan over time.
        with numpyro.plate("subject", persons, dim=-2), numpyro.plate("record", records, dim=-1):
            numpyro.sample("choice", law, obs=None if predict else jnp.asarray(log.action))

    return program


def _line(name: str, mean: dist.Distribution, sd: dist.Distribution, persons: int, pooling: str) -> Float[Array, "*P"]:
    """The values of the persons on the line."""
    # One value for all persons, under the prior of the mean.
    if pooling == "complete":
        return numpyro.sample(f"{name}_line", mean)  # type: ignore[return-value]
    if pooling == "none":
        with numpyro.plate("subject", persons, dim=-1):
            return numpyro.sample(f"{name}_line", mean)  # type: ignore[return-value]
    # Non-centred: the group's mean and spread are nearly independent of z.
    centre = jnp.asarray(numpyro.sample(f"{name}_mean", mean))
    spread = jnp.asarray(numpyro.sample(f"{name}_sd", sd))
    with numpyro.plate("subject", persons, dim=-1):
        z = jnp.asarray(numpyro.sample(f"{name}_z", dist.Normal(0.0, 1.0)))
    return centre + spread * z


class BehaviourPosterior(eqx.Module):
    """Draws of C chains, N of each, of the parameters of P persons (made by `fit`); print it.

    Args:
        params: name -> [C N P], in the support and unit of each parameter ([C N] where persons are pooled completely).
        mcmc: the chains of the sites of `numpyro_model`.
        model: whose parameters they are.
        log: the choices.
        pooling: what persons share.
    """

    params: dict[str, Float[AnyArray, "C N *P"]]
    mcmc: Chains
    model: BehaviourModel
    log: ChoiceLog
    pooling: str = eqx.field(static=True)

    @property
    def num_draws(self) -> int:
        """Of all chains."""
        return self.mcmc.num_chains * self.mcmc.num_samples

    def problems(self) -> list[str]:
        """Problems to know of before it is used, one sentence each; empty: none found."""
        return self.mcmc.problems()

    def group(self) -> dict[str, Float[np.ndarray, "C N"]]:
        """Draws of the group's mean of each parameter, mapped to its support (where persons share one)."""
        if self.pooling == "none":
            return {}
        site = "mean" if self.pooling == "partial" else "line"
        return {
            name: np.asarray(parameter.constrain(self.mcmc.draws[f"{name}_{site}"]))
            for name, parameter in self.model.parameters.items()
        }

    def each_person(self, num_draws: int | None = None) -> dict[str, Float[np.ndarray, "D P"]]:
        """Draws of the parameters of every person in their units, evenly thinned to `num_draws`, chain by chain."""
        # Positions in the draws of all chains, one chain after the other.
        index = self.thinned(num_draws)
        made, persons = {}, self.log.num_subjects
        for name, x in self.params.items():
            flat = np.asarray(x).reshape(self.num_draws, -1)[index]
            made[name] = np.broadcast_to(flat, (len(index), persons))
        return made

    def thinned(self, num_draws: int | None) -> np.ndarray:
        """Indices [D] of D = `num_draws` of all draws, evenly; None: of all.

        Raises:
            ValueError: `num_draws` is below 1. TypeError: no integer.
        """
        if num_draws is not None:
            check_count("num_draws", num_draws)
        number = min(num_draws or self.num_draws, self.num_draws)
        # First and last draw included.
        return np.linspace(0, self.num_draws - 1, number).round().astype(int)

    def table(self) -> "pd.DataFrame":
        """A row for each parameter of the group (subject None) and of each subject: moments, quantiles, diagnostics."""
        import pandas as pd

        rows = []

        def add(name: str, subject: Hashable, draws: np.ndarray) -> None:
            # The central 90 %.
            low, high = np.quantile(draws, [0.05, 0.95])
            r_hat, ess = (float(f(draws.astype(np.float64))) for f in (split_r_hat, effective_size))
            rows.append((name, subject, draws.mean(), draws.std(), low, high, r_hat, ess))

        for name, draws in self.group().items():
            add(name, None, draws)
        if self.pooling != "complete":
            for name, draws in self.params.items():
                for i, subject in enumerate(self.log.subjects):
                    add(name, subject, np.asarray(draws)[:, :, i])
        columns = ["parameter", "subject", "mean", "sd", "q05", "q95", "r_hat", "ess"]
        frame = pd.DataFrame(rows, columns=columns)
        frame["subject"] = pd.Series([row[1] for row in rows], dtype=object)  # labels stay what they are beside None
        return frame

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What it is, the group, the first subjects, and problems."""
        log, frame = self.log, self.table()
        parts: list[Part] = []
        for title, rows in (
            ("group" if self.pooling == "partial" else "all subjects", frame[frame["subject"].isna()]),
            ("subjects", frame[~frame["subject"].isna() & frame["subject"].isin(log.subjects[:_SHOWN_SUBJECTS])]),
        ):
            cells = [
                (
                    str(name) if title != "subjects" else f"{name} of {subject}",
                    *(f"{x:.3f}" for x in (mean, sd, low, high, r_hat)),
                    f"{ess:.0f}",
                )
                for name, subject, mean, sd, low, high, r_hat, ess in rows.to_numpy()
            ]
            if cells:
                parts.append(Table((title, "mean", "sd", "5 %", "95 %", "r-hat", "ess"), cells))
        num_hidden = log.num_subjects - _SHOWN_SUBJECTS
        if num_hidden > 0 and self.pooling != "complete":
            parts.append(f"... and {count_of(num_hidden, 'more subject')} (table())")
        return Section(
            f"Parameters of {count_of(log.num_subjects, 'subject')} from {count_of(log.num_choices, 'choice')} "
            f"({type(self.model).__name__}, pooling {self.pooling}, {self.mcmc.described()})",
            [*parts, *(f"Problem: {problem}" for problem in self.problems())],
        )


def fit(
    key: PRNGKeyArray,
    model: BehaviourModel,
    log: ChoiceLog,
    *,
    pooling: Pooling = "partial",
    sampler: NUTS | None = None,
) -> BehaviourPosterior:
    """The posterior of the parameters of all persons, and of the group that they come from.

    The program is `numpyro_model`; chains run side by side, in JAX's default width, compiled once for a model and the
    shape of a log. A `SamplingWarning` says what is wrong with the draws.

    NUTS follows gradients. A parameter in which the likelihood may jump (the learning rate of an epsilon-greedy
    learner) is refused, as its data flow shows (`bayes_mdp.behaviour.jumps`); a kernel of your own takes any.

    Args:
        key: a typed key.
        model: how persons choose and learn.
        log: their choices.
        pooling: "partial": persons are drawn from one group, whose mean and spread are inferred; "none": each by
            itself; "complete": all have the same parameters.
        sampler: how long, how many chains; None: `NUTS()`.

    Raises:
        ValueError, TypeError: as `log_likelihood`; a model without parameters; a choice of probability 0 at the centre
            of the prior (named); a parameter in which the likelihood may jump (named), unless `sampler` has a kernel.
    """
    check_key("key", key)
    check_model(model)
    check_type("log", log, ChoiceLog, "a ChoiceLog")
    check_name("pooling", pooling, POOLINGS)
    sampler = NUTS() if sampler is None else sampler
    check_sampler(sampler)
    if not model.parameters:
        raise ValueError("model has no parameters, expected at least one to infer")
    # Before chains start: a choice of probability 0 would leave every one of them without a finite density.
    # The middle of every support.
    centre = {name: jnp.full(log.num_subjects, p.constrain(0.0)) for name, p in model.parameters.items()}
    check_possible(action_log_likelihood(model, centre, log), log)
    if sampler.kernel is None:
        refuse_jumps(model, ends=log.terminated is not None)
    with stage(f"fit (nuts, {pooling} pooling)"):
        mcmc = jax.tree.map(np.asarray, _run_chains(key, model, log, pooling, sampler))
    values: dict[str, AnyArray] = {
        name: np.asarray(p.constrain(_lines(mcmc, name, pooling))) for name, p in model.parameters.items()
    }
    posterior = BehaviourPosterior(values, mcmc, model, log, pooling)
    warn_of(posterior.problems(), posterior.mcmc)
    return posterior


@eqx.filter_jit
def _run_chains(key: PRNGKeyArray, model: BehaviourModel, log: ChoiceLog, pooling: str, sampler: NUTS) -> Chains:
    return run_chains(key, numpyro_model(model, log, pooling), log, sampler)  # type: ignore[arg-type]


def _lines(mcmc: Chains, name: str, pooling: str) -> Float[Array, "C N *P"]:
    """Draws of the values of the persons on the line."""
    draws = {site: jnp.asarray(x) for site, x in mcmc.draws.items()}
    # The site is the line itself, where nothing is shared or everything.
    if pooling != "partial":
        return draws[f"{name}_line"]
    return draws[f"{name}_mean"][..., None] + draws[f"{name}_sd"][..., None] * draws[f"{name}_z"]


# The likelihood of a person under the law of the group: importance sampling around a normal approximation.


def subject_log_likelihood(
    key: PRNGKeyArray, posterior: BehaviourPosterior, *, num_draws: int | None = None, num_proposals: int = 32
) -> Float[np.ndarray, "D P"]:
    """log p(choices of a person | group), for draws of the group's mean and spread: not given the person's parameters.

    It is what leaving a person out asks for: how well the group predicts somebody new. Importance sampling, for every
    draw and person: the proposal is the group's law times a normal approximation of the person's likelihood (two
    derivatives of it at the person's posterior mean), a fifth wider. The likelihood is estimated without bias, its
    logarithm with an error of a few hundredths of a nat with some hundred proposals.

    Args:
        key: of the proposals.
        posterior: with partial pooling (otherwise persons have no common law).
        num_draws: D, draws of the group, thinned evenly; None: all.
        num_proposals: of each person and draw; the cost is D times this many evaluations of the likelihood.

    Raises:
        ValueError, TypeError: another pooling, a number that is no positive integer.
    """
    check_key("key", key)
    check_type("posterior", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
    check_count("num_proposals", num_proposals)
    if posterior.pooling != "partial":
        raise ValueError(f"posterior.pooling is {posterior.pooling!r}, expected 'partial': persons of one group")
    # The same draws for all persons.
    index = posterior.thinned(num_draws)

    def site(what: str) -> np.ndarray:
        """[N K] or [N P K], of all draws."""
        draws = [np.asarray(posterior.mcmc.draws[f"{name}_{what}"]) for name in posterior.model.parameters]
        return np.stack([x.reshape(posterior.num_draws, *x.shape[2:]) for x in draws], axis=-1)

    # Where each person's proposals are centred: the person's posterior mean on the line.
    mean, spread = site("mean"), site("sd")
    centre = (mean[:, None] + spread[:, None] * site("z")).mean(axis=0)
    # Sums over persons and draws are done in the width of the data.
    groups = tuple(jnp.asarray(x[index], float) for x in (mean, spread))
    return np.asarray(_integrate_person(key, posterior, jnp.asarray(centre, float), groups, num_proposals))


@eqx.filter_jit
def _integrate_person(
    key: PRNGKeyArray,
    posterior: BehaviourPosterior,
    centre: Float[Array, "P K"],
    groups: tuple[Float[Array, "D K"], ...],
    num_proposals: int,
) -> Float[Array, "D P"]:
    parameters = posterior.model.parameters
    persons, size = centre.shape

    def of_log(line: Float[Array, "P K"]) -> Float[Array, " P"]:
        params = {name: p.constrain(line[:, i]) for i, (name, p) in enumerate(parameters.items())}
        return jnp.sum(action_log_likelihood(posterior.model, params, posterior.log), axis=1)

    # Normal approximation of each likelihood at `centre`: gradient and precision (negative curvature is left out).
    slope = jax.grad(lambda line: jnp.sum(of_log(line)))
    curvature_along = lambda e: jax.jvp(slope, (centre,), (jnp.broadcast_to(e, centre.shape),))[1]  # noqa: E731
    gradient, hessian = (
        slope(centre),
        jnp.moveaxis(jax.lax.map(curvature_along, jnp.eye(size, dtype=centre.dtype)), 0, -1),
    )
    # Where a derivative is no number the proposal is the group's law alone; negative curvature counts as none, so that
    # the proposal is a proper normal law.
    usable = jnp.all(jnp.isfinite(hessian), (1, 2)) & jnp.all(jnp.isfinite(gradient), 1)
    symmetric = -0.5 * (hessian + jnp.swapaxes(hessian, 1, 2))
    values, vectors = jnp.linalg.eigh(jnp.where(usable[:, None, None], symmetric, 0.0))
    precision = einsum("pik,pk,pjk->pij", vectors, jnp.maximum(values, 0.0), vectors)
    gradient = jnp.where(usable[:, None], gradient, 0.0)

    def of_group(x: tuple[Array, Float[Array, " K"], Float[Array, " K"]]) -> Float[Array, " P"]:
        key, mean, spread = x
        # In units of the group's spread around its mean: prior N(0, 1), likelihood precision S L S.
        factor = jnp.linalg.cholesky(jnp.eye(size) + precision * spread[:, None] * spread)
        # Slope of the approximation at the group's mean.
        pull = spread * (gradient + einsum("pij,pj->pi", precision, centre - mean))
        middle = jax.vmap(lambda f, b: cho_solve((f, True), b))(factor, pull)
        # Proposals z = middle + 1.2 L^-T e with L L^T = I + S precision S: wider than the target, so that the weights
        # are bounded.
        e = jax.random.normal(key, (num_proposals, persons, size))
        draw = lambda f, e: solve_triangular(f, e, lower=True, trans=1)  # noqa: E731
        z = middle + _INFLATION * jax.vmap(jax.vmap(draw), in_axes=(None, 0))(factor, e)
        log_scale = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1) - size * jnp.log(_INFLATION)
        # Log of prior over proposal density at z; the constants of the two normal laws cancel.
        log_ratio = 0.5 * jnp.sum(e**2 - z**2, axis=-1) - log_scale
        log_likelihoods = jax.vmap(of_log)(mean + spread * z)
        return logsumexp(log_likelihoods + log_ratio, axis=0) - jnp.log(num_proposals)

    return jax.lax.map(of_group, (jax.random.split(key, len(groups[0])), *groups))
