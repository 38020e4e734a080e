"""`decision_model`: a NumPyro program that says what each strategy costs and brings, and its posterior given its data.

Sites that are independent of the others given the data and have conjugate data (or none) keep a closed form. The rest
is drawn: by running the program where there are no data, by NUTS where there are. Which is which is read from the
data flow of the traced program (`model_trace`).
"""

import sys
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.core import eval_jaxpr
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.decisions.strategies.cost_effectiveness import StrategyDraws
from bayes_mdp.decisions.strategies.model_trace import ModelTrace, Program, law_in_closed_form, run_program, trace_model
from bayes_mdp.decisions.strategies.site_law import SiteLaw
from bayes_mdp.inference.detection.degrees import HIGHER, output_flows, site_flow
from bayes_mdp.models.isolate import Isolated, isolated, tracing
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import (
    check_count,
    check_finite,
    check_key,
    check_names,
    check_shape,
    described,
    did_you_mean,
)

CHUNK = 1024
"""Draws that are evaluated at once: larger chunks leave the cache (measured, 4 times slower at 16,384)."""
COPIES = 4
"""Of all draws, in memory at the peak."""
LARGEST_R_HAT = 1.05


@dataclass(frozen=True, eq=False)
class DecisionModel:
    """Strategies under a belief. Built by `decision_model`; `print` says how each site was inferred.

    Args:
        trace: what the program is.
        program: the program, with its own copies of the user's arrays.
        laws: sites with a closed form, independent of each other and of all others -> posterior law.
        run_sites: sites without data that are drawn by running the program.
        chains: sites drawn by NUTS -> [draws, ...].
    """

    trace: ModelTrace = field(repr=False)
    program: Isolated = field(repr=False)
    laws: Mapping[str, SiteLaw] = field(repr=False)
    run_sites: tuple[str, ...]
    chains: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def strategies(self) -> tuple[str, ...]:
        """Their names."""
        return self.trace.strategies

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of the outcomes of each strategy."""
        return self.trace.outcomes

    @property
    def sites(self) -> tuple[str, ...]:
        """The latent sites, in the order of the program."""
        return tuple(self.trace.shapes)

    @property
    def exact(self) -> bool:
        """Whether the posterior of all sites has a closed form."""
        return not self.run_sites and not self.chains

    def __str__(self) -> str:
        """A line for each site."""
        lines = [f"Decision model: strategies {', '.join(self.strategies)}; outcomes {', '.join(self.outcomes)}"]
        for name in self.sites:
            seen = [observed for observed, sites in self.trace.data.items() if name in sites]
            data = f", given {', '.join(seen)}" if seen else ", no data"
            method = (
                f"exact ({self.laws[name].family}{data})"
                if name in self.laws
                else f"drawn by NUTS{data}"
                if name in self.chains
                else f"drawn by running the program ({self.trace.families[name]}{data})"
            )
            lines.append(f"  {name} {list(self.trace.shapes[name])}: {method}")
        return "\n".join(lines)

    def sample(self, key: PRNGKeyArray, num_draws: int = 10_000) -> StrategyDraws:
        """Draws of the posterior, and the outcomes in each.

        Args:
            key: of the draws.
            num_draws: how many.

        Raises:
            ValueError: more draws than the chains of NUTS have. TypeError: no key; no integer.
        """
        check_key("key", key)
        check_count("num_draws", num_draws)
        # Draws, outcomes and what XLA needs for a chunk.
        numbers = len(self.strategies) * len(self.outcomes) + sum(int(np.prod(x)) for x in self.trace.shapes.values())
        check_memory(f"num_draws is {num_draws}", 8.0 * COPIES * numbers * num_draws, "fewer draws take less")
        values = self.sample_sites(key, num_draws)
        return StrategyDraws(self.strategies, self.outcomes, self.evaluate(values), values, not self.chains)

    def at_most(self, num_draws: int) -> int:
        """So many draws, or all that the chains of NUTS have.

        Args:
            num_draws: how many are asked for.
        """
        return min([num_draws, *map(len, self.chains.values())])

    def sample_sites(self, key: PRNGKeyArray, num_draws: int) -> dict[str, np.ndarray]:
        """Draws of all sites, name -> [draws, ...]; see `sample`.

        Args:
            key: of the draws.
            num_draws: how many.

        Raises:
            ValueError: more draws than NUTS made.
        """
        rng = host_generator(key)
        # Closed forms by NumPy; independent of each other given the data.
        values = {name: law.sample(rng, num_draws) for name, law in self.laws.items()}
        # Sites without data: running the program draws from their prior.
        if self.run_sites:
            keys = jax.random.split(key, num_draws)
            with jax.enable_x64(True):
                values.update({name: np.asarray(x) for name, x in self._run(keys).items()})
        # Dependent sites by chains, one index for all of them.
        if self.chains:
            have = len(next(iter(self.chains.values())))
            if self.at_most(num_draws) < num_draws:
                raise ValueError(f"num_draws is {num_draws}, expected at most the {have} draws of NUTS")
            # Without replacement: chains have so many draws and no more.
            chosen = rng.permutation(have)[:num_draws]
            values.update({name: x[chosen] for name, x in self.chains.items()})
        return {name: values[name] for name in self.sites}

    def evaluate(self, values: Mapping[str, Float[AnyArray, "..."]]) -> Float[np.ndarray, "number strategies outcomes"]:
        """Outcomes at given values of all sites.

        Args:
            values: site -> [number, ...], as many values of each.

        Raises:
            ValueError: an outcome that is not finite.
        """
        flat = [np.asarray(values[name], float) for name in self.sites] or [np.zeros(1)]
        number, parts = len(flat[0]), []
        # Chunks of few sizes, so that few programs are compiled: the last one is padded to a power of two.
        for start in range(0, number, CHUNK):
            chunk = [x[start : start + CHUNK] for x in flat]
            size = len(chunk[0])
            width = min(CHUNK, 1 << (size - 1).bit_length())
            padded = [np.concatenate([x, np.repeat(x[-1:], width - size, axis=0)]) for x in chunk]
            with jax.enable_x64(True):
                parts.append(np.asarray(self._outcomes(padded))[:size])
        results = np.concatenate(parts)
        if not np.all(np.isfinite(results)):
            draw, strategy, outcome = (int(i) for i in np.argwhere(~np.isfinite(results))[0])
            value, name = results[draw, strategy, outcome], self.outcomes[outcome]
            raise ValueError(
                f"program: {name!r} of {self.strategies[strategy]!r} is {value} in draw {draw}, expected finite "
                "outcomes"
            )
        return results

    def at(self, values: Mapping[str, ArrayLike] | None = None) -> StrategyDraws:
        """Outcomes at one value of each site (a base case), as one draw.

        Args:
            values: site -> value, a number or an array; other sites are at their posterior mean.

        Raises:
            ValueError: a site that the program does not have; another shape; a value that is not finite.
            TypeError: a value that is no number.
        """
        chosen = {} if values is None else dict(values)
        self.check_sites("values", chosen)
        # Means in closed form, or of the chains.
        point = {name: law.mean() for name, law in self.laws.items()}
        point |= {name: x.mean(0) for name, x in self.chains.items()}
        missing = [name for name in self.run_sites if name not in chosen]
        if missing:
            raise ValueError(f"values has no {missing[0]!r}, expected it: its mean has no closed form here")
        for name, value in chosen.items():
            check_finite(f"values[{name!r}]", value)
            array = np.asarray(value, float)
            check_shape(f"values[{name!r}]", array, self.trace.shapes[name], "of the site")
            point[name] = array
        sites = {name: point[name][None] for name in self.sites}
        return StrategyDraws(self.strategies, self.outcomes, self.evaluate(sites), sites)

    def check_sites(self, argument: str, names: Iterable[str]) -> None:
        """All names are latent sites.

        Args:
            argument: what the message calls them.
            names: to be looked up.

        Raises:
            ValueError: the first that is none, with the nearest.
        """
        check_known(argument, names, self.sites, "sites of the program")

    def select(self, strategies: Iterable[str]) -> "DecisionModel":
        """The same belief with some of the strategies, in the given order.

        Args:
            strategies: names of those that stay.

        Raises:
            ValueError: no strategies, one twice, or one that the program does not have.
            TypeError: names that are no sequence, or cannot be hashed.
        """
        names = tuple(strategies)
        check_names("strategies", names)
        if not names:
            raise ValueError("strategies is empty, expected at least one")
        check_known("strategies", names, self.strategies, "those of the program")
        return replace(self, trace=self.trace.restrict([self.strategies.index(name) for name in names]))

    def degrees(self, weights: Float[np.ndarray, " outcomes"]) -> dict[str, int]:
        """The largest degree of each site in the net benefits; sites that no net benefit depends on are left out.

        Args:
            weights: of the outcomes in the net benefit, in units of it per unit of outcome.
        """
        largest: dict[str, int] = {}
        # The degree of a net benefit in a site is the largest over outcomes that carry weight.
        for row in self.trace.flows:
            for flow, weight in zip(row, weights, strict=True):
                for site, degree in flow.degrees.items() if weight else ():
                    largest[site] = max(degree, largest.get(site, 0))
        return largest

    def jointly_affine(self, sites: Iterable[str]) -> bool:
        """Whether all outcomes are affine in these `sites` together (no products of them)."""
        # The sites as one input: their joint degree is that of a product of any of them.
        together = set(sites)
        inputs = [site_flow("all" if name in together else name) for name in self.sites]
        flows = output_flows(self.trace.closed.jaxpr, inputs)
        shown = self.trace.outcomes_of(flows)
        # One tag for all of them: a product of two has degree 2.
        return all(flow.degrees.get("all", 0) < HIGHER for row in shown for flow in row)

    @cached_property
    def _outcomes(self) -> Any:  # a jitted function has no nameable type
        trace = self.trace

        def one(values: list[Array]) -> Array:
            # The traced program, evaluated with sites as arguments.
            flat = eval_jaxpr(trace.closed.jaxpr, trace.closed.consts, *(values if trace.shapes else []))
            return jnp.stack([jnp.stack(row) for row in trace.outcomes_of(flat)])

        return jax.jit(jax.vmap(one))

    @cached_property
    def _run(self) -> Any:
        program, names = self.program, self.run_sites

        def one(key: PRNGKeyArray) -> dict[str, Array]:
            with tracing(), handlers.trace() as sites, handlers.seed(rng_seed=key):
                # Run under a key: what is not conditioned on is drawn from its prior.
                program()
            return {name: sites[name]["value"] for name in names}

        return jax.jit(jax.vmap(one))


def decision_model(
    program: Program,
    *args: object,
    key: PRNGKeyArray | None = None,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    num_chains: int = 4,
) -> DecisionModel:
    """The posterior of a NumPyro program that returns what each strategy costs and brings. Works in float64.

    Args:
        program: a function that samples sites, observes data (`obs=`) and returns {strategy: {"cost": c, "effect": e}},
            or {strategy: value}; scalars that can be traced by JAX. Latent sites are continuous.
        args: of the program.
        key: for NUTS; needed only where some site with data has no closed form.
        num_warmup, num_samples, num_chains: of NUTS.

    Raises:
        TypeError: the program returns something else, or branches in Python on what it drew.
        ValueError: strategies with different outcomes; discrete latent sites; data that are impossible; no key where
            one is needed.

    Example:
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> def program():
        ...     cured = numpyro.sample("cured", dist.Beta(8.0, 2.0))
        ...     return {"wait": {"cost": 0.0, "effect": 0.5}, "treat": {"cost": 2.0, "effect": cured}}
        >>> model = bm.strategies.decision_model(program)
        >>> model.strategies, model.outcomes
        (('wait', 'treat'), ('cost', 'effect'))
    """
    if not callable(program):
        raise TypeError(f"program is {described(program)}, expected a function that returns strategy -> outcomes")
    private_program = isolated(partial(program, *args)) if args else isolated(program)
    trace = trace_model(private_program)
    laws: dict[str, SiteLaw] = {}
    run_sites: list[str] = []
    chained: list[str] = []
    # Blocks that are independent given the data are inferred one by one: in closed form, by chains, or by a run.
    for block in trace.blocks():
        # A single site with conjugate data, or none.
        law = law_in_closed_form(trace, block[0]) if len(block) == 1 else None
        if law is not None:
            laws[block[0]] = law
        # Dependent, or not conjugate, with data: chains. Without data: a run.
        elif any(sites & set(block) for sites in trace.data.values()):
            chained.extend(block)
        else:
            run_sites.extend(block)
    chains = {}
    if chained:
        if key is None:
            raise ValueError(
                f"key is None, expected a key: site {chained[0]!r} has no closed form and is drawn by NUTS"
            )
        check_key("key", key)
        chains = _by_nuts(key, private_program, trace, tuple(chained), laws, (num_warmup, num_samples, num_chains))
    return DecisionModel(trace, private_program, laws, tuple(run_sites), chains)


def _by_nuts(
    key: PRNGKeyArray,
    program: Isolated,
    trace: ModelTrace,
    names: tuple[str, ...],
    laws: Mapping[str, SiteLaw],
    sizes: tuple[int, int, int],
) -> dict[str, np.ndarray]:
    """Draws of some sites. The others are independent of them: they are held at any value."""
    warmup, samples, chains = sizes
    with jax.enable_x64(True), tracing():
        sites, _ = run_program(program, {})
        # Independent of the rest: any value of the others leaves these conditionals as they are.
        fixed = {name: sites[name]["value"] for name in trace.shapes if name not in names}
        kernel = numpyro.infer.NUTS(handlers.condition(program, data=fixed))
        sampler = numpyro.infer.MCMC(
            kernel,
            num_warmup=warmup,
            num_samples=samples,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=sys.stderr.isatty(),
        )
        sampler.run(key)
        by_chain = {name: np.asarray(x) for name, x in sampler.get_samples(group_by_chain=True).items()}
    # R-hat of the worst number of the worst site.
    worst = max((float(np.max(numpyro.diagnostics.split_gelman_rubin(by_chain[n]))), n) for n in names)
    if not worst[0] <= LARGEST_R_HAT:
        warnings.warn(
            f"NUTS: R-hat of site {worst[1]!r} is {worst[0]:.3f}, expected at most {LARGEST_R_HAT}: take more draws",
            stacklevel=3,
        )
    # Chain after chain.
    return {name: by_chain[name].reshape(-1, *by_chain[name].shape[2:]) for name in names}


def check_known(argument: str, names: Iterable[str], known: Collection[str], expected: str) -> None:
    """All names are known ones.

    Args:
        argument: what the message calls them.
        names: to be looked up.
        known: those that there are.
        expected: what these are, in words.

    Raises:
        ValueError: the first that is none, with the nearest.
    """
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f": {', '.join(map(repr, known))}"
            raise ValueError(f"{argument} has {name!r}, expected {expected}{hint}")
