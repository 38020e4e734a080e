"""`Mixture`: a weighted mixture of conjugate posteriors, as a latent parent with finitely many values leaves behind."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.predictive import log_gain
from bayes_mdp.mdp import MDP, StateActionSpace, Transitions
from bayes_mdp.mdp.validation import check_shape, is_concrete, require

Pairs = Float[Array, "*H S A"]


class Mixture(eqx.Module):
    """A mixture of posteriors of one kind (built by `mixture`).

    Its rows are not independent, but those of each component may be: what theorems say of independent rows holds
    component by component, and the law of total variance joins them.

    Args:
        components: a `ConjugatePosterior` whose arrays have a leading axis K.
        log_weights: [K], of the components, up to a constant.
        space: sizes, names, masks.
    """

    components: ConjugatePosterior
    log_weights: Float[Array, " K"]
    space: StateActionSpace

    @property
    def weights(self) -> Float[Array, " K"]:
        """Probabilities of the components."""
        return jax.nn.softmax(jnp.asarray(self.log_weights))

    @property
    def independent_rows(self) -> bool:
        """False: what is seen of one row tells which component holds, and so of the others."""
        return False

    @property
    def ties(self) -> str | None:
        """What is tied within a component, in words; None: nothing, the mixture can be taken component by component."""
        if self.components.independent_rows:
            return None
        return self._component(0).ties

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP:
        """Draw hypotheses: one, or a batch with leading axes `sample_shape` on every array."""
        draw = self._draw
        for _ in sample_shape:
            draw = jax.vmap(draw)
        return draw(jax.random.split(key, sample_shape) if sample_shape else key)

    def _draw(self, key: PRNGKeyArray) -> MDP:
        key_component, key_mdp = jax.random.split(key)
        k = jax.random.categorical(key_component, jnp.asarray(self.log_weights))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[k], self.components).sample(key_mdp)

    def mean_mdp(self) -> MDP:
        """Posterior mean of the transition probabilities and of the expected rewards."""
        mdps = jax.vmap(lambda component: component.mean_mdp())(self.components)
        rows, reward = self._mean(mdps.transition_probs), self._mean(mdps.reward)
        ends = None if mdps.end_probs is None else self._mean(mdps.end_probs)
        return MDP(rows, reward, end_probs=ends, legal=self.space.legal)

    def visit_counts(self) -> Pairs:
        """Number of transitions seen from every pair."""
        return jax.vmap(lambda component: component.visit_counts())(self.components)[0]

    def reward_variance(self) -> Pairs:
        """Epistemic variance of the expected reward of one step.

        Raises:
            ValueError: it does not exist in a component (normal-gamma concentration <= 1).
        """
        return self.bellman_variance(jnp.zeros(self.space.n_states), 0.0)

    def bellman_variance(self, values: Float[Array, "*H S"], discount: Any) -> Pairs:
        """Variance over the posterior of sum_o P(o | s, a) (r(s, a, o) + discount values(o)), by total variance.

        Args and errors: as `ConjugatePosterior.bellman_variance`.
        """
        if is_concrete(self):
            for k in range(len(self.log_weights)):
                self._component(k).expected_reward_variance()

        def one(component: ConjugatePosterior) -> tuple[Pairs, Pairs]:
            mdp = component.mean_mdp()
            worth = jnp.expand_dims(jnp.asarray(values), (-3, -2))
            mean = mdp.reward + discount * (mdp.transition_probs * worth).sum(-1)
            return mean, component.bellman_variance(values, discount)

        means, within = jax.vmap(one)(self.components)
        return self._mean(within) + self._mean((means - self._mean(means)) ** 2)

    def update(self, transitions: Transitions, weight: Any = 1.0) -> "Mixture":
        """The mixture after one transition or a block: components by conjugacy, weights by predictive likelihood.

        Args:
            transitions: data; a block is taken one transition after the other.
            weight: scalar or [N]; zero masks a transition of a fixed buffer, another number raises its likelihood to
                that power.

        Raises:
            ValueError, TypeError: data that the space or the prior cannot hold (not inside a trace).
        """
        if is_concrete(transitions, weight, self.log_weights):
            self.check(transitions, weight)
        if jnp.ndim(transitions.state) == 0:
            return self._see(transitions, weight)
        weights = jnp.broadcast_to(jnp.asarray(weight, float), jnp.shape(transitions.state))
        start, block = jax.tree.map(jnp.asarray, (self, transitions))
        return lax.scan(lambda belief, x: (belief._see(*x), None), start, (block, weights))[0]

    def check(self, transitions: Transitions, weight: Any = 1.0) -> None:
        """Refuse transitions that no component can hold, as `ConjugatePosterior.check`. Host side.

        What is impossible in one component alone only tells that it does not hold.
        """
        refusals: list[Exception] = []
        for k in np.flatnonzero(np.isfinite(self.log_weights)):
            try:
                return self._component(int(k)).check(transitions, weight)
            except (ValueError, TypeError) as error:
                refusals.append(error)
        raise refusals[0]

    def _component(self, k: int) -> ConjugatePosterior:
        return jax.tree.map(lambda leaf: leaf[k], self.components)

    def _see(self, transition: Transitions, weight: Any) -> "Mixture":
        def one(component: ConjugatePosterior) -> tuple[ConjugatePosterior, Float[Array, ""]]:
            return component.update(transition, weight), log_gain(component, transition, weight)

        components, gain = jax.vmap(one)(jax.tree.map(jnp.asarray, self.components))
        log_weights = self.log_weights + gain
        return Mixture(components, log_weights - jnp.max(log_weights), self.space)

    def _mean(self, values: Float[Array, "K *rest"]) -> Float[Array, "*rest"]:
        return jnp.tensordot(self.weights, values, axes=1)


def mixture(posteriors: Sequence[ConjugatePosterior], *, weights: Any = None) -> Mixture:
    """A mixture of posteriors over one space. Host side.

    Args:
        posteriors: of one kind, one for each value of the latent parent.
        weights: [K], positive; normalised here. None: by `log_evidence` (Bayes' rule, values equally likely at first).

    Raises:
        ValueError: no posterior, posteriors that differ in space, structure or shapes, weights that are not positive, a
            log evidence that is not finite.
    """
    if not isinstance(posteriors, Sequence):
        kind = type(posteriors).__name__
        raise TypeError(f"posteriors is a {kind}, expected a list of posteriors, one for each value of the parent")
    if not posteriors:
        raise ValueError("posteriors is empty, expected at least one posterior")
    first = posteriors[0]
    _require_alike(posteriors)
    if weights is None:
        log_weights = np.array([posterior.log_evidence for posterior in posteriors])
        require(
            ~np.isfinite(log_weights), "log_evidence", log_weights, "a finite number for each posterior, or weights"
        )
    else:
        array = np.asarray(weights, float)
        check_shape("weights", array, (len(posteriors),), "posterior")
        require(~(np.isfinite(array) & (array > 0)), "weights", array, "a finite number greater than 0")
        log_weights = np.log(array)
    components = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *posteriors)
    log_weights = log_weights - np.logaddexp.reduce(log_weights)
    return Mixture(components, log_weights, first.space)


def _require_alike(posteriors: Sequence[ConjugatePosterior]) -> None:
    outlines = [
        (jax.tree.structure(posterior), [np.shape(leaf) for leaf in jax.tree.leaves(posterior)])
        for posterior in posteriors
    ]
    for index, outline in enumerate(outlines):
        if outline != outlines[0]:
            raise ValueError(
                f"posteriors[{index}] differs from posteriors[0] in its space, laws or shapes, "
                "expected posteriors of one kind (the same program with other numbers)"
            )
