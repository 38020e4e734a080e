"""`SupportedDirichlet`: Dirichlet rows of which some outcomes are known to be impossible, as a NumPyro distribution."""

import math
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlogy
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform, biject_to
from numpyro.distributions.util import validate_sample

from bayes_mdp.utils.typing import AnyArray, ArrayLike, BoolScalar
from bayes_mdp.utils.validation import as_mask, as_real, check_positive, check_shape, is_concrete, require

SPARSE = 0.25  # share of the outcomes that are possible: below, they are read one by one
SUM_TOLERANCE = 1e-6
"""How far a row may be from summing to one; NumPyro's own for a simplex."""


class SupportedSimplex(constraints.Constraint):
    """Probability rows that are zero at impossible outcomes. Compares by content.

    Args:
        possible: Bool[*batch K], at least one outcome in every row.
    """

    event_dim = 1

    def __init__(self, possible: Bool[np.ndarray, "*batch K"]) -> None:
        self.possible = possible

    @cached_property
    def _content(self) -> tuple[tuple[int, ...], bytes]:
        return self.possible.shape, np.packbits(self.possible).tobytes()

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SupportedSimplex) and self._content == other._content

    def __call__(self, x: Float[AnyArray, "*batch K"]) -> BoolScalar | Bool[AnyArray, "*batch"]:
        inside = jnp.where(self.possible, x >= 0, x == 0).all(-1)
        return inside & (jnp.abs(x.sum(-1) - 1.0) < SUM_TOLERANCE)

    def feasible_like(self, prototype: Float[AnyArray, "*batch K"]) -> Float[Array, "*batch K"]:
        """Equal probabilities of all possible outcomes."""
        even = self.possible / self.possible.sum(-1, keepdims=True)
        return jnp.broadcast_to(jnp.asarray(even, float), jnp.shape(prototype))

    def __repr__(self) -> str:
        return f"SupportedSimplex({self.possible.sum()} possible of {self.possible.size} entries)"

    def tree_flatten(self) -> tuple[tuple[()], "SupportedSimplex"]:
        """No leaves: the mask is not traced."""
        return (), self

    @classmethod
    def tree_unflatten(cls, aux_data: "SupportedSimplex", params: object) -> "SupportedSimplex":
        """The same."""
        return aux_data


class StickBreakingRows(Transform):
    """All free numbers of the rows, [D], to the rows [*batch K]: stick breaking over the possible outcomes of each.

    A row of m possible outcomes takes m - 1 numbers, row after row: D is their sum, and none is idle.
    """

    def __init__(self, rows: SupportedSimplex) -> None:
        self.rows = rows
        possible = rows.possible
        number = possible.sum(-1, keepdims=True)
        # Possible outcomes first: `order` moves them there, `back` returns them.
        self.order: Int[np.ndarray, "*batch K"] = np.argsort(~possible, axis=-1, kind="stable")
        self.back: Int[np.ndarray, "*batch K"] = np.argsort(self.order, axis=-1, kind="stable")
        place = np.arange(possible.shape[-1])
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
        return constraints.independent(self.rows, self.breaks.ndim - 1)

    def __call__(self, x: Float[AnyArray, "*many D"]) -> Float[Array, "*rows K"]:
        logits = self._table(x)
        share = jnp.where(self.breaks, jax.nn.sigmoid(logits), jnp.where(self.last, 1.0, 0.0))
        # Off zero: a density of a small concentration is infinite there.
        rows = jnp.exp(self._log_left(logits)) * share
        rows = jnp.where(self.breaks | self.last, jnp.maximum(rows, jnp.finfo(rows.dtype).tiny), 0.0)
        return self._moved(rows, self.back)

    def _table(self, x: Float[AnyArray, "*many D"]) -> Float[Array, "*rows K"]:
        """The free numbers at their places, less the offset; zero elsewhere."""
        x = jnp.asarray(x)
        shape = (*x.shape[:-1], *self.breaks.shape)
        values = x - jnp.asarray(self.offset[self.free], x.dtype)
        return jnp.zeros(shape, values.dtype).at[(..., *self.free)].set(values)

    def _log_left(self, logits: Float[Array, "*rows K"]) -> Float[Array, "*rows K"]:
        """log of what is left of the stick before each break."""
        kept = jnp.where(self.breaks, jax.nn.log_sigmoid(-logits), 0.0)
        return jnp.pad(jnp.cumsum(kept, -1)[..., :-1], [*[(0, 0)] * (kept.ndim - 1), (1, 0)])

    def _moved(self, x: Array, to: Int[np.ndarray, "*batch K"]) -> Array:
        return jnp.take_along_axis(x, jnp.broadcast_to(to, x.shape), -1)

    def _inverse(self, y: Float[AnyArray, "*rows K"]) -> Float[Array, "*many D"]:
        ordered = self._moved(jnp.asarray(y), self.order)
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
        terms = self._log_left(logits) + jax.nn.log_sigmoid(logits) + jax.nn.log_sigmoid(-logits)
        return jnp.where(self.breaks, terms, 0.0).sum(-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """[..., D] -> [..., *batch, K]."""
        return (*shape[:-1], *self.breaks.shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """[..., *batch, K] -> [..., D]."""
        return (*shape[: len(shape) - self.breaks.ndim], int(self.breaks.sum()))

    def tree_flatten(self) -> tuple[tuple[()], "StickBreakingRows"]:
        """No leaves: the tables are not traced."""
        return (), self

    @classmethod
    def tree_unflatten(cls, aux_data: "StickBreakingRows", params: object) -> "StickBreakingRows":
        """The same."""
        return aux_data

    def __hash__(self) -> int:
        return hash(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingRows) and self.rows == other.rows


@biject_to.register(SupportedSimplex)
def _to_rows(constraint: SupportedSimplex) -> StickBreakingRows:
    return StickBreakingRows(constraint)


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
        terms = xlogy(concentration - 1.0, jnp.where(possible, jnp.asarray(value), 1.0)) - gammaln(concentration)
        return jnp.where(possible, terms, 0.0).sum(-1) + gammaln(jnp.asarray(self.concentration).sum(-1))

    def _log_prob_of_few(self, value: Float[Array, "... K"]) -> Float[Array, "..."]:
        """The same, from the possible outcomes alone: rows are padded to the longest, log gammas are dear."""
        possible = self._rows.possible
        place = np.nonzero(possible)
        row = (
            np.ravel_multi_index(place[:-1], possible.shape[:-1]) if possible.ndim > 1 else np.zeros(len(place[0]), int)
        )
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
        return concentration / concentration.sum(-1, keepdims=True)

    @property
    def variance(self) -> Float[Array, "*batch K"]:
        """Variance of each probability."""
        return self.mean * (1.0 - self.mean) / (jnp.asarray(self.concentration).sum(-1, keepdims=True) + 1.0)
