"""`supported_dirichlet`: independent Dirichlet transition rows, over the outcomes that are possible.

Below it the NumPyro distributions behind such rows: `SupportedDirichlet`, of which some outcomes are known to be
impossible, and `StableDirichlet`, whose smallest probabilities are not rounded on the unconstrained scale.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlogy
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from numpyro.distributions import constraints, transforms
from numpyro.distributions.transforms import Transform, biject_to
from numpyro.distributions.util import validate_sample
from numpyro.primitives import Message, Messenger

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import check_dense_rows, check_space
from bayes_mdp.models.as_prior import PoweredDensity
from bayes_mdp.models.mdp_spec import broadcast_to_cells
from bayes_mdp.numerics.array_forms import compact
from bayes_mdp.utils.typing import AnyArray, ArrayLike, BoolScalar
from bayes_mdp.utils.validation import (
    as_mask,
    as_real,
    check_concentration,
    check_not_negative,
    check_positive,
    check_shape,
    check_type,
    is_concrete,
    require,
)

ROW_BYTES = 64  # for each probability of a dense row: concentrations, counts, a posterior and its mean; measured
OUTCOME_DIM = "next_state"


def supported_dirichlet(
    concentration: ArrayLike, space: StateActionSpace, name: str = "transition"
) -> Float[Array, "*H S A O"]:
    """Rows P(. | (step,) s, a) ~ Dirichlet, independent, zero outside the known support. To be called in a program.

    One site, `name`: `numpyro.distributions.Dirichlet`, or `SupportedDirichlet` where some outcomes are impossible. If
    every row has one possible outcome the rows are known, and `name` is a deterministic site. An illegal pair without
    any stays where it is. It opens the plates of the space itself; where they are open already they are used.

    Args:
        concentration: a number, or an array that broadcasts to [*H S A O]; a zero there is one more impossible outcome.
            Of one outcome: it is multiplied by the `multiplicity` of the space.
        space: its `support`, `successors`, `horizon`, `ends` and `legal` are honoured.
        name: of the sites.

    Raises:
        ValueError: a concentration that is negative or not finite, a row without a positive one, another shape; dense
            rows that would not fit in memory; another plate is open on an axis of those of the space.
        TypeError: no space, a name that is no string, concentrations that are no numbers.

    Example:
        >>> import numpyro
        >>> space = bm.StateActionSpace(2, 1, support=[[[True, True]], [[False, True]]])
        >>> with numpyro.handlers.seed(rng_seed=0):
        ...     rows = bm.models.supported_dirichlet(1.0, space)
        >>> rows[1, 0].tolist()  # a row with one possible outcome is known
        [0.0, 1.0]
        >>> concentration = np.array([[5.0, 1.0], [1.0, 5.0]])[:, None, :]  # a row for each state, [S 1 O]
        >>> with numpyro.handlers.seed(rng_seed=0):
        ...     bm.models.supported_dirichlet(concentration, bm.StateActionSpace(2, 3)).shape
        (2, 3, 2)
    """
    check_type("name", name, str, "a string")
    full, possible = row_concentrations(concentration, space)
    if (possible.sum(-1) == 1).all():
        return jnp.asarray(numpyro.deterministic(name, jnp.asarray(possible, full.dtype)))
    # NumPyro's own law where nothing is impossible: other programs know it.
    law = dist.Dirichlet(_repeat(full)) if possible.all() else SupportedDirichlet(_positive(full, possible), possible)
    # One row a pair: the plates of the space are the batch.
    with space.plates():
        return jnp.asarray(numpyro.sample(name, law, infer={"event_dims": [OUTCOME_DIM]}))


def row_concentrations(
    concentration: ArrayLike, space: StateActionSpace
) -> tuple[Float[AnyArray, "*H S A O"], Bool[np.ndarray, "*H S A O"]]:
    """Those of all rows, with the `multiplicity` of the space, and which outcomes are possible.

    Args, errors: as of `supported_dirichlet`.
    """
    check_space(space)
    check_dense_rows(space, ROW_BYTES)
    check_not_negative("concentration", concentration)
    # What the concentration says of one outcome holds for every row that broadcasts to it.
    full = broadcast_to_cells("concentration", concentration, space, by_outcome=True)
    if space.multiplicity is not None:
        # Outcomes that are put together have the sum of their concentrations.
        full = full * space.multiplicity
    return full, _possible(full, space)


def _positive(
    concentration: Float[AnyArray, "*H S A O"], possible: Bool[np.ndarray, "*H S A O"]
) -> Float[AnyArray, "*H S A O"]:
    """One in place of zeros: an illegal pair that stays where it is has no concentration there."""
    if not is_concrete(concentration):
        return concentration
    # Along axes that repeat one place is looked at.
    small = compact(np.asarray(concentration))
    if (small > 0).all():
        return _repeat(concentration)
    return np.where(possible & (np.asarray(concentration) <= 0), 1.0, np.asarray(concentration))


def _repeat(concentration: Float[AnyArray, "*H S A O"]) -> Float[AnyArray, "*H S A O"]:
    """The same; what repeats along whole axes enters a traced program once, which then computes with it once."""
    if not is_concrete(concentration):
        return concentration
    return jnp.broadcast_to(compact(np.asarray(concentration)), concentration.shape)


def _possible(concentration: Float[AnyArray, "*H S A O"], space: StateActionSpace) -> Bool[np.ndarray, "*H S A O"]:
    """Which outcomes a row can have, after the support of the space and the zeros of a concrete concentration."""
    # What the space knows, and what the concentration rules out by a zero.
    known = space.possible
    possible = np.ones(concentration.shape, bool) if known is None else np.broadcast_to(known, concentration.shape)
    if is_concrete(concentration):
        positive = compact(np.asarray(concentration)) > 0
        if not positive.all():
            # Of traced numbers no zero can be told.
            possible = possible & positive
            legal = np.ones(space.shape, bool) if space.legal is None else np.broadcast_to(space.legal, space.shape)
            check_concentration("concentration", np.where(legal[..., None], possible, 1.0))
    # An illegal pair without any outcome is a known row: it stays where it is (of listed successors: the first place).
    empty = ~possible.any(-1, keepdims=True)
    if not empty.any():
        return possible
    stay = space.stays if space.successors is None else np.arange(space.n_outcomes) == 0
    return possible | (empty & stay)


SPARSE = 0.25  # share of the outcomes that are possible: below, they are read one by one
# With fewer possible outcomes than this share a sum over them is cheaper.
SUM_TOLERANCE = 1e-6
"""How far a row may be from summing to one; NumPyro's own for a simplex."""


class _Untraced:
    """A node of a pytree without leaves: its tables are not traced."""

    def tree_flatten(self) -> tuple[tuple[()], Self]:
        """No leaves."""
        return (), self

    @classmethod
    def tree_unflatten(cls, aux_data: Self, params: object) -> Self:
        """The same."""
        return aux_data


class SupportedSimplex(_Untraced, constraints.Constraint):
    """Probability rows that are zero at impossible outcomes. Compares by content.

    Args:
        possible: Bool[*batch K], at least one outcome in every row.
    """

    event_dim = 1

    def __init__(self, possible: Bool[np.ndarray, "*batch K"]) -> None:
        self.possible = possible

    @cached_property
    def _content(self) -> tuple[tuple[int, ...], bytes]:
        # A mask is large: its bits stand for it.
        return self.possible.shape, np.packbits(self.possible).tobytes()

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SupportedSimplex) and self._content == other._content

    def __call__(self, x: Float[AnyArray, "*batch K"]) -> BoolScalar | Bool[AnyArray, "*batch"]:
        inside = jnp.where(self.possible, x >= 0, x == 0).all(-1)
        # As long as it is in [0, inf) and sums to one, it is at most one.
        return inside & (jnp.abs(x.sum(-1) - 1.0) < SUM_TOLERANCE)

    def feasible_like(self, prototype: Float[AnyArray, "*batch K"]) -> Float[Array, "*batch K"]:
        """Equal probabilities of all possible outcomes."""
        even = self.possible / self.possible.sum(-1, keepdims=True)
        return jnp.broadcast_to(jnp.asarray(even, float), jnp.shape(prototype))

    def __repr__(self) -> str:
        return f"SupportedSimplex({self.possible.sum()} possible of {self.possible.size} entries)"


class StickBreakingRows(_Untraced, Transform):
    """All free numbers of the rows, [D], to the rows [*batch K]: stick breaking over the possible outcomes of each.

    A row of m possible outcomes takes m - 1 numbers, row after row: D is their sum, and none is idle.
    """

    def __init__(self, rows: SupportedSimplex) -> None:
        self.rows = rows
        possible = rows.possible
        number = possible.sum(-1, keepdims=True)
        # Possible outcomes first: `order` moves them there, `back` returns them.
        self.order: Int[np.ndarray, "*batch K"] = np.argsort(~possible, axis=-1, kind="stable")
        # The inverse permutation.
        self.back: Int[np.ndarray, "*batch K"] = np.argsort(self.order, axis=-1, kind="stable")
        place = np.arange(possible.shape[-1])
        # All but the last possible outcome take a break; the last one takes what is left.
        self.breaks: Bool[np.ndarray, "*batch K"] = place < number - 1
        self.last: Bool[np.ndarray, "*batch K"] = place == number - 1
        # Equal shares at zero: a break takes 1 / (how many outcomes are left).
        self.offset: Float[np.ndarray, "*batch K"] = np.log(np.maximum(number - 1 - place, 1))
        self.free = np.nonzero(self.breaks)

    @property
    def domain(self) -> constraints.Constraint:
        """A vector."""
        return constraints.real_vector

    @property
    def codomain(self) -> constraints.Constraint:
        """All rows as one event."""
        # Places of the free numbers in the table of rows, row after row.
        return constraints.independent(self.rows, self.breaks.ndim - 1)

    def __call__(self, x: Float[AnyArray, "*many D"]) -> Float[Array, "*rows K"]:
        logits = self._table(x)
        share = jnp.where(self.breaks, jax.nn.sigmoid(logits), jnp.where(self.last, 1.0, 0.0))
        # Off zero: a density of a small concentration is infinite there.
        rows = jnp.exp(self._log_left(logits)) * share
        rows = jnp.where(self.breaks | self.last, jnp.maximum(rows, jnp.finfo(rows.dtype).tiny), 0.0)
        return self._move(rows, self.back)

    def _table(self, x: Float[AnyArray, "*many D"]) -> Float[Array, "*rows K"]:
        """The free numbers at their places, less the offset; zero elsewhere."""
        x = jnp.asarray(x)
        shape = (*x.shape[:-1], *self.breaks.shape)
        values = x - jnp.asarray(self.offset[self.free], x.dtype)
        return jnp.zeros(shape, values.dtype).at[(..., *self.free)].set(values)

    def _log_left(self, logits: Float[Array, "*rows K"]) -> Float[Array, "*rows K"]:
        """log of what is left of the stick before each break."""
        # log of the product of 1 - share over the breaks before; log sigmoid(-x) = log(1 - sigmoid(x)).
        log_kept = jnp.where(self.breaks, jax.nn.log_sigmoid(-logits), 0.0)
        return jnp.pad(jnp.cumsum(log_kept, -1)[..., :-1], [*[(0, 0)] * (log_kept.ndim - 1), (1, 0)])

    def _move(self, x: Array, to: Int[np.ndarray, "*batch K"]) -> Array:
        return jnp.take_along_axis(x, jnp.broadcast_to(to, x.shape), -1)

    def _inverse(self, y: Float[AnyArray, "*rows K"]) -> Float[Array, "*many D"]:
        ordered = self._move(jnp.asarray(y), self.order)
        # Off zero, as the rows are.
        tiny = jnp.finfo(ordered.dtype).tiny
        # share = y / (what is left); what is left after it is the sum of the later outcomes, from the end: a sum that
        # holds the share itself, minus the share, would cancel where little is left.
        left = jnp.cumsum(ordered[..., ::-1], -1)[..., ::-1]
        later = jnp.concatenate([left[..., 1:], jnp.zeros_like(left[..., :1])], -1)
        logits = jnp.log(jnp.maximum(ordered, tiny)) - jnp.log(jnp.maximum(later, tiny))
        return (logits + self.offset)[(..., *self.free)]

    def log_abs_det_jacobian(
        self,
        x: Float[AnyArray, "*many D"],
        y: Float[AnyArray, "*rows K"],
        intermediates: PyTree | None = None,
    ) -> Float[Array, "*rows"]:
        """log |d rows / d x|, row by row: sum over breaks of log(left) + log(share) + log(1 - share)."""
        del y, intermediates
        logits = self._table(x)
        # Stick breaking is triangular: the determinant is a product over breaks.
        terms = self._log_left(logits) + jax.nn.log_sigmoid(logits) + jax.nn.log_sigmoid(-logits)
        return jnp.where(self.breaks, terms, 0.0).sum(-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """[..., D] -> [..., *batch, K]."""
        return (*shape[:-1], *self.breaks.shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """[..., *batch, K] -> [..., D]."""
        return (*shape[: len(shape) - self.breaks.ndim], int(self.breaks.sum()))

    def __hash__(self) -> int:
        return hash(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingRows) and self.rows == other.rows


biject_to.register(SupportedSimplex, StickBreakingRows)


class SupportedDirichlet(dist.Distribution):
    """Independent Dirichlet rows over the possible outcomes of each; the others have probability zero.

    A draw has event shape [K]. A row with one possible outcome is known: its density is one.

    Args:
        concentration: Float[*batch K], positive where an outcome is possible; not looked at elsewhere.
        possible: Bool[*batch K], known numbers, at least one outcome in every row.
        validate_args: as of NumPyro.

    Raises:
        ValueError: shapes that differ, a row without a possible outcome, a concentration at a possible outcome that is
            not finite and positive (concrete values only).
        TypeError: concentrations that are no numbers, a mask that is none.

    Example:
        >>> law = bm.models.SupportedDirichlet(np.ones((2, 3)), np.array([[True, True, False], [True] * 3]))
        >>> print(np.asarray(law.mean).round(3))
        [[0.5   0.5   0.   ]
         [0.333 0.333 0.333]]
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - what is positive depends on the mask
    pytree_data_fields = ("concentration",)
    pytree_aux_fields = ("_rows",)

    concentration: Float[AnyArray, "*batch K"]

    def __init__(
        self,
        concentration: Float[AnyArray, "*batch K"],
        possible: Bool[AnyArray, "*batch K"],
        *,
        validate_args: bool | None = None,
    ) -> None:
        if is_concrete(concentration):
            concentration = as_real("concentration", concentration)
        # The mask is part of the program, not of its numbers: it has to be known in a trace.
        mask = np.asarray(as_mask("possible", possible))
        check_shape("possible", mask, jnp.shape(concentration), "as concentration")
        require(~mask.any(-1), "possible", mask.any(-1), "at least one possible outcome")
        if is_concrete(concentration):
            check_positive("concentration", np.where(mask, np.asarray(concentration), 1.0))
        # Zero at impossible outcomes: the parameter says by itself what the rows are.
        self.concentration = jnp.where(mask, concentration, 0.0)
        self._rows = SupportedSimplex(mask)
        super().__init__(mask.shape[:-1], mask.shape[-1:], validate_args=validate_args)

    @property
    def support(self) -> SupportedSimplex:
        """Rows that are zero at impossible outcomes."""
        return self._rows

    def sample(self, key: PRNGKeyArray | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "... K"]:
        """Rows, zero at impossible outcomes."""
        assert key is not None  # NumPyro's own annotation has None
        possible, shape = self._rows.possible, (*sample_shape, *jnp.shape(self.concentration))
        # Gamma draws on the log scale: of a row of small concentrations all draws may underflow.
        log_weights = jax.random.loggamma(key, jnp.where(possible, self.concentration, 1.0), shape)
        return jax.nn.softmax(jnp.where(possible, log_weights, -jnp.inf), axis=-1)

    @validate_sample
    def log_prob(self, value: ArrayLike, intermediates: object = None) -> Float[AnyArray, "..."]:
        """Log density of each row of `value` [... K] on its possible outcomes."""
        del intermediates
        possible = self._rows.possible
        if possible.sum() <= SPARSE * possible.size:
            return self._log_prob_of_few(jnp.asarray(value))
        concentration = jnp.where(possible, self.concentration, 1.0)
        # Where impossible, a value of one and a concentration of one add nothing.
        terms = xlogy(concentration - 1.0, jnp.where(possible, jnp.asarray(value), 1.0)) - gammaln(concentration)
        return jnp.where(possible, terms, 0.0).sum(-1) + gammaln(jnp.asarray(self.concentration).sum(-1))

    def _log_prob_of_few(self, value: Float[Array, "... K"]) -> Float[Array, "..."]:
        """The same, from the possible outcomes alone: rows are padded to the longest, log gammas are dear."""
        possible = self._rows.possible
        # Indices of the possible outcomes, in order of their rows.
        place = np.nonzero(possible)
        row = (
            np.ravel_multi_index(place[:-1], possible.shape[:-1]) if possible.ndim > 1 else np.zeros(len(place[0]), int)
        )
        # [..., number of possible outcomes]: the padding is never made.
        concentration = jnp.asarray(self.concentration)[(..., *place)]
        terms = xlogy(concentration - 1.0, value[(..., *place)]) - gammaln(concentration)
        sums = jnp.zeros((*terms.shape[:-1], math.prod(possible.shape[:-1])), terms.dtype)
        sums = sums.at[..., row].add(terms, indices_are_sorted=True)
        total = gammaln(jnp.asarray(self.concentration).sum(-1))
        return sums.reshape(*terms.shape[:-1], *possible.shape[:-1]) + total

    @property
    def mean(self) -> Float[Array, "*batch K"]:
        """Expected probabilities."""
        concentration = jnp.asarray(self.concentration)
        # Zero where impossible, because concentrations are.
        return concentration / concentration.sum(-1, keepdims=True)

    @property
    def variance(self) -> Float[Array, "*batch K"]:
        """Variance of each probability."""
        return self.mean * (1.0 - self.mean) / (jnp.asarray(self.concentration).sum(-1, keepdims=True) + 1.0)


# NumPyro's stick breaking keeps at least the machine epsilon of what is left of the stick. Many draws of a Dirichlet
# law of a small concentration a lie beyond: of two outcomes about epsilon^a / 2 at either end, a twelfth in float64 for
# a = 0.05. Chains and integrals miss them. Here every step is on the log scale, down to the smallest normal number
# (1e-308 in float64).


class StableSimplex(constraints.Constraint):
    """Probability rows, as NumPyro's simplex, with a transform of its own."""

    event_dim = 1

    def __call__(self, x: Float[AnyArray, "*batch K"]) -> BoolScalar | Bool[AnyArray, "*batch"]:
        inside: Any = constraints.simplex(x)
        return inside

    def feasible_like(self, prototype: Float[AnyArray, "*batch K"]) -> Float[Array, "*batch K"]:
        """Equal probabilities."""
        return jnp.full_like(prototype, 1.0 / jnp.shape(prototype)[-1])

    def __hash__(self) -> int:
        return hash(StableSimplex)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StableSimplex)

    def tree_flatten(self) -> tuple[tuple[()], tuple[tuple[()], dict[str, object]]]:
        """No leaves, in the form of NumPyro's constraints."""
        return (), ((), {})


class StableStickBreaking(transforms.StickBreakingTransform):
    """NumPyro's stick breaking, [*batch K-1] -> [*batch K], the same numbers but for its rounding near the corners."""

    codomain = StableSimplex()

    def __call__(self, x: Float[AnyArray, "*batch L"]) -> Float[Array, "*batch K"]:
        share, left = self._logs(x)
        pad = [(0, 0)] * (share.ndim - 1)
        # Shares of the breaks; the last entry has none of its own.
        # entry = what is left before it * its share; the last entry takes all that is left.
        before = jnp.pad(left, [*pad, (1, 0)])
        rows = jnp.exp(before + jnp.pad(share, [*pad, (0, 1)]))
        return jnp.maximum(rows, jnp.finfo(rows.dtype).tiny)

    def _logs(self, x: Float[AnyArray, "*batch L"]) -> tuple[Float[Array, "*batch L"], Float[Array, "*batch L"]]:
        """log of the share of each break, and of what is left after it."""
        logits = self._logits(x)
        return jax.nn.log_sigmoid(logits), jnp.cumsum(jax.nn.log_sigmoid(-logits), axis=-1)

    def _logits(self, x: Float[AnyArray, "*batch L"]) -> Float[Array, "*batch L"]:
        """Balanced: at zero a break takes 1 / (how many entries are left)."""
        number = jnp.shape(x)[-1]
        return jnp.asarray(x) - jnp.log(number - jnp.arange(number))

    def _inverse(self, y: Float[AnyArray, "*batch K"]) -> Float[Array, "*batch L"]:
        y = jnp.asarray(y)
        number = y.shape[-1] - 1
        # What is left after an entry is the sum of the later ones, from the end: nothing cancels.
        left = jnp.flip(jnp.cumsum(jnp.flip(y, -1), axis=-1), -1)[..., 1:]
        # The logarithm of either is finite down to the smallest normal number.
        tiny = jnp.finfo(y.dtype).tiny
        logits = jnp.log(jnp.maximum(y[..., :-1], tiny)) - jnp.log(jnp.maximum(left, tiny))
        return logits + jnp.log(number - jnp.arange(number))

    def log_abs_det_jacobian(
        self, x: Float[AnyArray, "*batch L"], y: Float[AnyArray, "*batch K"], intermediates: PyTree | None = None
    ) -> Float[Array, "*batch"]:
        """Sum over breaks of log(left before) + log(share) + log(1 - share)."""
        del y, intermediates
        share, left = self._logs(x)
        # Left before the break, times 1 - share, is what is left after it.
        return (share + left).sum(-1)


biject_to.register(StableSimplex, lambda constraint: StableStickBreaking())


class StableDirichlet(dist.Dirichlet):
    """NumPyro's Dirichlet law with the support `StableSimplex`."""

    support = StableSimplex()


class stable_simplex(Messenger):
    """A handler: latent Dirichlet sites have the support `StableSimplex`; all else stays as it is.

    Args:
        fn: a program; None: used as a context.
    """

    def process_message(self, msg: Message) -> None:
        """Replace the law of a latent Dirichlet site."""
        # Observed rows are left alone: no chain moves them.
        if msg["type"] == "sample" and not msg["is_observed"]:
            msg["fn"] = _stable(msg["fn"])


def _stable(law: Any) -> Any:
    """The law with a stable support where it is Dirichlet, what is around it kept; else itself."""
    if type(law) is dist.Dirichlet:
        return StableDirichlet(law.concentration)
    around = next((again for kind, again in _AROUND.items() if isinstance(law, kind)), None)
    if around is None:
        return law
    inner = _stable(law.base_dist)
    return law if inner is law.base_dist else around(inner, law)


_AROUND: dict[type[Any], Callable[[Any, Any], Any]] = {
    dist.ExpandedDistribution: lambda inner, law: inner.expand(law.batch_shape),
    PoweredDensity: lambda inner, law: PoweredDensity(inner, law.power),
    dist.MaskedDistribution: lambda inner, law: inner.mask(law._mask),
    dist.Independent: lambda inner, law: inner.to_event(law.reinterpreted_batch_ndims),
}
"""What NumPyro puts around a law -> the same around another one."""
