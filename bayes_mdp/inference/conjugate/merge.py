"""Merge posteriors that were inferred from disjoint data (shards) under one prior."""

from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, merge_sources
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.rewards import Rewards
from bayes_mdp.utils.validation import check_bool, described


def merge(posteriors: Sequence[ConjugatePosterior], *, allow_duplicates: bool = False) -> ConjugatePosterior:
    """The posterior given the data of all `posteriors`, which share space and prior and saw *disjoint* data.

    Host side, in the width of their arrays. Counts are summed and reward statistics merged, so the prior enters once
    and the order does not matter (but for rounding).

    Args:
        posteriors: at least one.
        allow_duplicates: whether two of them may have learnt from one log (see `ConjugatePosterior.sources`).

    Raises:
        ValueError: there is none, their spaces, tables or priors differ, or two have learnt from one log.
        TypeError: an entry is no conjugate posterior.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> first, second = (
        ...     bm.infer(jax.random.key(0), prior, bm.Transitions([0], [0], [reward], [0]), space=space)
        ...     for reward in (0.0, 1.0)
        ... )
        >>> bm.inference.merge([first, second]).visit_counts().tolist()
        [[2.0]]
    """
    if not isinstance(posteriors, Sequence):
        raise TypeError(f"posteriors is {described(posteriors)}, expected a list of posteriors")
    if not posteriors:
        raise ValueError("posteriors is empty, expected at least one posterior")
    for i, posterior in enumerate(posteriors):
        if not isinstance(posterior, ConjugatePosterior):
            raise TypeError(f"posteriors[{i}] is a {type(posterior).__name__}, expected a ConjugatePosterior")
        if not posterior.reward_cells.in_closed_form:
            raise TypeError(
                f"posteriors[{i}] is a {type(posterior).__name__}, whose rewards are draws, expected a posterior in "
                "closed form; use infer on the data of all"
            )
    check_bool("allow_duplicates", allow_duplicates)
    names = [set(posterior.outcomes or ()) for posterior in posteriors]
    # Outcomes have to be learnt by all shards, or by none.
    odd = next((i for i, part in enumerate(names) if part != names[0]), None)
    if odd is not None:
        raise ValueError(
            f"posteriors[{odd}] has learnt the outcomes {sorted(names[odd])}, expected those of posteriors[0], "
            f"{sorted(names[0])}"
        )
    # Each outcome is a posterior of its own: merged likewise.
    if names[0]:
        learnt = {
            name: merge(
                [part.outcomes[name] for part in posteriors if part.outcomes], allow_duplicates=allow_duplicates
            )
            for name in posteriors[0].outcomes or ()
        }
        alone = [replace(part, outcomes=None) for part in posteriors]
        return replace(merge(alone, allow_duplicates=allow_duplicates), outcomes=learnt)
    # Logs that two shards have seen are refused by their digests.
    sources = merge_sources([posterior.sources for posterior in posteriors], allow_duplicates=allow_duplicates)
    with jax.enable_x64(True):
        # Listed counts may list other columns in each shard: dense before they are added.
        first, *shards = (posterior.unlisted() for posterior in posteriors)
        for i, shard in enumerate(shards, start=1):
            _check_same(first, shard, i)
            first = _add(first, shard)
        return replace(jax.tree.map(np.asarray, first), sources=sources)


def _check_same(first: ConjugatePosterior, other: ConjugatePosterior, i: int) -> None:
    """Refuse two posteriors whose priors are not the same, array by array (tables and masks included)."""
    parts = {"space": (first.space, other.space), "prior": (_prior(first), _prior(other))}
    for part_name, (expected, present) in parts.items():
        # Equal prior and space, leaf by leaf; nan marks what does not exist, and equals itself here.
        is_equal = jax.tree.structure(expected) == jax.tree.structure(present) and all(
            np.array_equal(a, b, equal_nan=True)
            for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(present), strict=True)
        )
        if not is_equal:
            raise ValueError(
                f"posteriors[{i}] has another {part_name} than posteriors[0], expected shards inferred from one prior"
            )


def _prior(posterior: ConjugatePosterior) -> tuple[DirichletRows, Rewards]:
    """What a posterior was before any data: everything but its data and masks."""
    # Counts at zero: what is left are prior concentrations and tables.
    return eqx.tree_at(lambda r: r.counts, posterior.transition_probs, 0.0), posterior.reward_cells.before_data()


def _add(one: ConjugatePosterior, two: ConjugatePosterior) -> ConjugatePosterior:
    # Sufficient statistics add up: counts, moments, visits, constants.
    counts = jnp.add(one.transition_probs.counts, two.transition_probs.counts)
    rows = eqx.tree_at(lambda r: r.counts, one.transition_probs, counts)
    rewards = one.reward_cells.merge(two.reward_cells)
    visits = None if one.visits is None or two.visits is None else jnp.add(one.visits, two.visits)
    constant = jnp.add(one.constant, two.constant)
    return replace(one, transition_probs=rows, reward_cells=rewards, visits=visits, constant=constant)
