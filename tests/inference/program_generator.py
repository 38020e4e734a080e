"""Random prior programs with effect handlers, as descriptions, and their rendering as the text of a NumPyro program.

A description says what is drawn (hyperparameters, rows, rewards), what else bears on the density (factors,
observations), and what stands around a site (`scale`, `mask`, `condition`, `reparam`, ...). `text` writes it down as a
user would; `program_oracle` computes the posterior of the same description with NumPy and SciPy alone. Neither looks at
the package, nor at the other.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

Number: TypeAlias = float | np.ndarray


@dataclass(frozen=True)
class Affine:
    """A parameter of a site: constant + slope * (the signal of another site); no site: the constant."""

    constant: Number
    slope: Number = 0.0
    of: str = ""


@dataclass(frozen=True)
class Spread:
    """The standard deviation (count * tau)^-1/2 of a mean above its precision, the site `of`."""

    count: float
    of: str


Parameter: TypeAlias = Affine | Spread


@dataclass(frozen=True)
class Site:
    """One sample site.

    Args:
        name: of the site.
        family: as in the `WRITTEN` table.
        parameters: in the order of that table.
        lead: "shared" (one value), "state" (one for each state) or "pairs".
        style: how its shape is written: "plates", "own plates", "stack", "expand".
        signal: how it enters parameters of other sites: a key of `SIGNALS`; empty: it does not.
        scale: exponents of its density, one after the other; a string is the signal of a site.
        mask: where its density counts; None: everywhere.
        writing: other things around it, see `FEATURES`.
        fixed: the handler that fixes its value; empty: none.
        value: that value.
    """

    name: str
    family: str
    parameters: tuple[Parameter, ...]
    lead: str = "shared"
    style: str = "plates"
    signal: str = ""
    scale: tuple[float | np.ndarray | str, ...] = ()
    mask: bool | np.ndarray | None = None
    writing: frozenset[str] = frozenset()
    fixed: str = ""
    value: Number | None = None


@dataclass(frozen=True)
class Rows:
    """The transition law: how it is made of a site ("dirichlet", "moves", "logistic", "choice", "blend", "known", "too
    much": rows that do not sum to one), and its tables [S A S]."""

    kind: str
    site: str = ""
    tables: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True)
class Rewards:
    """The reward law: its family, the site behind it, what is known (rewards, noise, offsets), and its mask [S A]."""

    kind: str
    site: str = ""
    known: Number = 1.0
    precision: str = ""
    mask: np.ndarray | None = None


@dataclass(frozen=True)
class Extra:
    """What bears on the density beside the sites.

    Args:
        kind: "factor", "binomial", "normal" (observations), "deterministic", "random" (numbers that are of no site).
        of: a site; its first element is looked at, or its signal.
        number: the slope of the factor, the observed value.
        scale, mask: as of a site.
    """

    kind: str
    of: str = ""
    number: float = 0.0
    signal: bool = False
    scale: tuple[float, ...] = ()
    mask: bool | None = None


@dataclass(frozen=True)
class Description:
    """A program and its data.

    Args:
        seed: of the description.
        n_states, n_actions: of the space.
        sites: in the order of the program.
        rows, rewards: the laws.
        extras: factors, observations.
        around: what stands around the whole program, keys of `AROUND`.
        refused: why it cannot be inferred, in words; empty: it can.
        features: what was chosen.
        state, action, next_state, reward: the data; reward None: rewards are known; no rows: no data.
    """

    seed: int
    n_states: int
    n_actions: int
    sites: tuple[Site, ...]
    rows: Rows
    rewards: Rewards
    extras: tuple[Extra, ...] = ()
    around: tuple[str, ...] = ()
    refused: str = ""
    features: tuple[str, ...] = ()
    state: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    action: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    next_state: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    reward: np.ndarray | None = None

    def site(self, name: str) -> Site:
        """The site of this name."""
        return next(site for site in self.sites if site.name == name)

    def lead(self, site: Site) -> tuple[int, ...]:
        """The shape of its plates."""
        return {"shared": (), "state": (self.n_states,), "pairs": (self.n_states, self.n_actions)}[site.lead]


TABLE = (0.4, 1.5, 3.0, 0.8, 2.0)
SIGNALS: dict[str, str] = {
    "plus": "0.5 + {}",
    "exp": "jnp.exp(0.4 * {})",
    "table": "jnp.array([0.4, 1.5, 3.0, 0.8, 2.0])[{}]",
    "stop": "jax.lax.stop_gradient(0.5 + {})",
    "callback up": "jax.pure_callback(lambda x: np.asarray(0.5 + x, wide), "
    "jax.ShapeDtypeStruct((), wide), {}, vmap_method='expand_dims')",
    "callback down": "jax.pure_callback(lambda x: np.asarray(2.5 / (0.5 + x), wide), "
    "jax.ShapeDtypeStruct((), wide), {}, vmap_method='expand_dims')",
    "cond": "control_flow.cond({0} > 1, lambda x: 0.5 + 2.0 * x, lambda x: 0.5 + x, {0})",
    "last": "jnp.exp(0.4 * {}[-1])",
}
"""How a site enters the parameters of others, as text; the oracle has its own table of these names."""

WRITTEN: dict[str, Callable[..., str]] = {
    "Normal": "dist.Normal({}, {})".format,
    "HalfNormal": "dist.HalfNormal({})".format,
    "Gamma": "dist.Gamma({}, {})".format,
    "Beta": "dist.Beta({}, {})".format,
    "LogNormal": "dist.LogNormal({}, {})".format,
    "Uniform": "dist.Uniform({}, {})".format,
    "Exponential": "dist.Exponential({})".format,
    "Dirichlet": "dist.Dirichlet({})".format,
    "Logistic normal": "dist.TransformedDistribution(dist.Normal({}, {}), dist.transforms.SigmoidTransform())".format,
    "Exp normal": "dist.TransformedDistribution(dist.Normal({}, {}), dist.transforms.ExpTransform())".format,
    "Affine normal": (
        "dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.AffineTransform({}, {}))".format
    ),
    "Bernoulli": "dist.Bernoulli({})".format,
    "Categorical": "dist.Categorical({})".format,
    "DiscreteUniform": "dist.DiscreteUniform({}, {})".format,
    "Poisson": "dist.Poisson({})".format,
    "Geometric": "dist.Geometric({})".format,
    "Delta": "dist.Delta({})".format,
    "Flat": "dist.ImproperUniform(dist.constraints.real, (), ())".format,
    "Flat unit": "dist.ImproperUniform(dist.constraints.unit_interval, (), ())".format,
}
"""Families of sites, as text."""


HALF = {"subsample", "first half"}
"""A plate that takes one of two."""


def number(x: object) -> str:
    """A number or an array, as text."""
    return f"jnp.array({np.asarray(x).tolist()})" if np.ndim(x) else repr(float(x))  # type: ignore[arg-type]


def _parameter(parameter: Parameter, family: str) -> str:
    if isinstance(parameter, Spread):
        return f"({parameter.count} * {parameter.of}) ** -0.5"
    constant = number(parameter.constant)
    if family == "DiscreteUniform":
        constant = repr(int(parameter.constant))  # type: ignore[arg-type]
        return constant if not parameter.of else f"{constant} + {parameter.of}"
    return constant if not parameter.of else f"{constant} + {number(parameter.slope)} * g_{parameter.of}"


def _around(scale: tuple[float | np.ndarray | str, ...], mask: bool | np.ndarray | None) -> list[str]:
    """The handlers around one statement."""
    lines = [f"handlers.scale(scale={f'g_{s}' if isinstance(s, str) else number(s)})" for s in scale]
    return lines if mask is None else [*lines, f"handlers.mask(mask={_mask_text(mask)})"]


def _mask_text(mask: bool | np.ndarray) -> str:
    return f"jnp.array({mask.tolist()})" if isinstance(mask, np.ndarray) else repr(mask)


def _handlers(site: Site) -> list[str]:
    """The handlers around a statement, the outermost first."""
    handler = _around(site.scale, None if "law mask" in site.writing else site.mask)
    if "inside" in site.writing:
        handler.append(f"handlers.{site.fixed}(data={{'{site.name}': {_value(site)}}})")
    if "inner seed" in site.writing:
        handler.append("handlers.seed(rng_seed=0)")
    if "inner config" in site.writing:
        handler.append("handlers.infer_config(config_fn=lambda site: {'note': 1})")
    return handler


def _plates(site: Site, lead: tuple[int, ...]) -> list[str]:
    """The plates around a statement, the outermost first."""
    name, plates = site.name, []
    if lead and site.style == "plates":
        plates = ["space.plates()"] if len(lead) == 2 else [f"numpyro.plate('states of {name}', {lead[0]})"]
    elif lead and site.style == "own plates":
        plates = [f"numpyro.plate('{name} {i}', {size}, dim={i - len(lead)})" for i, size in enumerate(lead)]
    elif lead and site.style == "stack":
        plates = [f"numpyro.plate_stack('plates of {name}', {list(lead)})"]
    if HALF & site.writing:
        plates.append(f"numpyro.plate('part of {name}', 2, subsample_size=1)")
    return plates


def _control_flow(site: Site) -> list[str]:
    """A site in a loop (a random walk of three steps, of which the last counts) or in both branches of a condition."""
    name = site.name
    if "scan" in site.writing:
        handler = _around(site.scale, None)
        lines = [
            f"def step_{name}(carry, _):",
            f"    {name} = numpyro.sample('{name}', dist.Normal(carry, 0.5))",
            f"    return {name}, {name}",
            f"_, {name} = control_flow.scan(step_{name}, 0.0, jnp.arange(3))",
        ]
        if handler:
            lines = [f"with {', '.join(handler)}:", *[f"    {line}" for line in lines]]
    else:
        which = site.parameters[0]
        assert isinstance(which, Affine)
        one, other = (f"lambda _: numpyro.sample('{name}', dist.Normal({law}))" for law in ("1.0, 0.5", "0.0, 1.0"))
        lines = [f"{name} = control_flow.cond({which.of} == 1, {one}, {other}, None)"]
    return [*lines, f"g_{name} = {SIGNALS[site.signal].format(name)}"]


def _statement(description: Description, site: Site) -> list[str]:
    """One site: its handlers and plates, its law, its signal."""
    name, lead = site.name, description.lead(site)
    if {"scan", "cond"} & site.writing:
        return _control_flow(site)
    law = WRITTEN[site.family](*(_parameter(each, site.family) for each in site.parameters))
    if "law mask" in site.writing and site.mask is not None:
        law += f".mask({_mask_text(site.mask)})"
    if lead and site.style == "expand":
        law += f".expand({lead}).to_event({len(lead)})"
    options = ""
    if "own key" in site.writing:
        options += ", rng_key=jax.random.key(3)"
    if "infer" in site.writing:
        options += ", infer={'note': 1}"
    statement = f"numpyro.sample('{name}', {law}{options})"
    if "lift" in site.writing:
        statement = f"numpyro.param('{name}', 0.5)"
    if "delta" in site.writing:
        statement = f"numpyro.sample('{name}_again', dist.Delta({statement}))"
    handler, plates = _handlers(site), _plates(site, lead)
    withs = [*plates, *handler] if "plates outside" in site.writing else [*handler, *plates]
    lines = [f"{name} = {statement}"]
    if withs:
        lines = [f"with {', '.join(withs)}:", f"    {name} = {statement}"]
    if HALF & site.writing:
        lines.append(f"{name} = {name}[0]")
    if "deterministic" in site.writing:
        lines.append(f"{name} = numpyro.deterministic('{name} again', {name})")
    if site.signal:
        lines.append(f"g_{name} = {SIGNALS[site.signal].format(name)}")
    return lines


def _value(site: Site) -> str:
    whole = site.family in ("Bernoulli", "Categorical", "DiscreteUniform")
    assert site.value is not None
    if not whole and not np.ndim(site.value) and "inside" not in site.writing:
        return repr(float(site.value))  # a number of Python
    return f"jnp.array({int(site.value)})" if whole else f"jnp.array({np.asarray(site.value).tolist()})"


def _first(description: Description, name: str) -> str:
    """The first element of a site."""
    site = description.site(name)
    event = site.family == "Dirichlet"
    axes = len(description.lead(site)) + event
    return name + (f"[{', '.join('0' * axes)}]" if axes else "")


def _extra(description: Description, index: int, extra: Extra) -> list[str]:
    looked = f"g_{extra.of}" if extra.signal else _first(description, extra.of) if extra.of else ""
    name = f"extra{index}"
    line = {
        "factor": f"numpyro.factor('{name}', {extra.number} * {looked})",
        "binomial": f"numpyro.sample('{name}', dist.Binomial(12, {looked}), obs=jnp.array({extra.number}))",
        "normal": f"numpyro.sample('{name}', dist.Normal({looked}, 0.4), obs=jnp.array({extra.number}))",
        "deterministic": f"numpyro.deterministic('{name}', 2.0 * {looked})",
        "random": "noise = jax.random.uniform(numpyro.prng_key())",
    }[extra.kind]
    handler = _around(extra.scale, extra.mask)
    return [f"with {', '.join(handler)}:", f"    {line}"] if handler else [line]


def _spread(description: Description, name: str) -> str:
    """The values of a site, to be broadcast against [S A]."""
    site = description.site(name)
    return name + {"shared": "", "pairs": "", "state": "[:, None]"}[site.lead]


def _rows(description: Description) -> str:
    rows = description.rows
    tables = [number(table) for table in rows.tables]
    if rows.kind == "known":
        return tables[0]
    if rows.kind == "dirichlet":
        return _spread(description, rows.site)
    if rows.kind == "choice":
        return f"jnp.stack([{', '.join(tables)}])[{rows.site}]"
    probability = _spread(description, rows.site)
    if rows.kind == "logistic":
        probability = f"jax.nn.sigmoid({probability})"
    if description.site(rows.site).lead != "shared":
        probability = f"({probability})[..., None]"
    text = f"{probability} * {tables[0]} + (1 - {probability}) * {tables[1]}"
    if rows.kind == "too much":
        return f"1.3 * ({text})"
    return text.replace(probability, "noise") if any(e.kind == "random" for e in description.extras) else text


def _rewards(description: Description) -> str:
    rewards = description.rewards
    known = number(rewards.known)
    mean = _spread(description, rewards.site) if rewards.site else ""
    precision = _spread(description, rewards.precision) if rewards.precision else ""
    law = {
        "known": known,
        "bernoulli": f"dist.Bernoulli({mean})",
        "logits": f"dist.Bernoulli(logits={mean})",
        "normal": f"dist.Normal({mean}, {known})",
        "poisson": f"dist.Poisson({mean})",
        "exponential": f"dist.Exponential({mean})",
        "student": f"dist.StudentT(5.0, {mean}, {known})",
        "normal gamma": f"dist.Normal({mean}, {precision} ** -0.5)",
        "direct": f"dist.Normal({known} * g_{rewards.site}, 1.0)",
        "ordered": f"dist.OrderedLogistic({mean}, jnp.array([-0.5, 1.0]))",
        "mixture": (
            f"dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), "
            f"dist.Normal(jnp.stack([{mean}, {mean} + 2.0], -1), 1.0))"
        ),
    }[rewards.kind]
    if rewards.mask is not None:
        shape = (description.n_states, description.n_actions)
        law += f".expand({shape}).mask(jnp.array({rewards.mask.tolist()}))"
    return law


AROUND: dict[str, str] = {
    "scale": "handlers.scale(prior, scale=2.0)",
    "config": "handlers.infer_config(prior, config_fn=lambda site: {'note': 1})",
    "uncondition": "handlers.uncondition(prior)",
    "scope": "handlers.scope(prior, prefix='inner')",
}
"""What may stand around a whole program."""


def text(description: Description) -> str:
    """The NumPyro program `prior(space)`, as text."""
    body = [line for site in description.sites for line in _statement(description, site)]
    if any("callback" in site.signal for site in description.sites):
        body.insert(0, "wide = jnp.result_type(float)")  # read here: a callback runs elsewhere
    for index, extra in enumerate(description.extras):
        body += _extra(description, index, extra)
    body.append(f"return bm.models.MDPSpec({_rows(description)}, {_rewards(description)})")
    lines = ["def prior(space):", *[f"    {line}" for line in body]]
    for site in description.sites:
        if site.fixed and "inside" not in site.writing:
            data = f"data={{'{site.name}': {_value(site)}}}"
            if site.fixed == "block":
                lines.append(
                    f"prior = handlers.block(handlers.substitute(prior, {data}), "
                    f"hide_fn=lambda site: site.get('name') == '{site.name}')"
                )
            else:
                lines.append(f"prior = handlers.{site.fixed}(prior, {data})")
        if "hidden" in site.writing:
            lines.append(f"prior = handlers.block(prior, hide=['{site.name}'])")
        if "lift" in site.writing:
            law = WRITTEN[site.family](*(_parameter(each, site.family) for each in site.parameters))
            lines.append(f"prior = handlers.lift(prior, prior={{'{site.name}': {law}}})")
        if "loc scale" in site.writing:
            lines.append(f"prior = handlers.reparam(prior, config={{'{site.name}': LocScaleReparam(0.0)}})")
        if "transform" in site.writing:
            lines.append(f"prior = handlers.reparam(prior, config={{'{site.name}': TransformReparam()}})")
        if "first half" in site.writing:
            lines.append(f"prior = handlers.substitute(prior, data={{'part of {site.name}': jnp.array([0])}})")
    lines += [f"prior = {AROUND[name]}" for name in description.around]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# The generator.


def _one_of(rng: np.random.Generator, options: tuple | list) -> object:
    return options[int(rng.integers(len(options)))]


def _hyperparameter(rng: np.random.Generator, name: str) -> Site:
    families: dict[str, tuple[tuple[Affine, ...], str]] = {
        "HalfNormal": ((Affine(1.0),), "plus"),
        "Gamma": ((Affine(2.0), Affine(1.5)), "plus"),
        "Beta": ((Affine(2.0), Affine(3.0)), "plus"),
        "LogNormal": ((Affine(0.0), Affine(0.5)), "plus"),
        "Uniform": ((Affine(0.2), Affine(2.5)), "plus"),
        "Exponential": ((Affine(1.5),), "plus"),
        "Normal": ((Affine(0.3), Affine(1.0)), "exp"),
        "Logistic normal": ((Affine(0.2), Affine(0.8)), "plus"),
        "Exp normal": ((Affine(0.0), Affine(0.4)), "plus"),
        "Affine normal": ((Affine(0.3), Affine(0.8)), "exp"),
        "Categorical": ((Affine(np.array([0.2, 0.5, 0.3])),), "table"),
        "Bernoulli": ((Affine(0.3),), "plus"),
        "DiscreteUniform": ((Affine(0), Affine(3)), "plus"),
    }
    weights = np.array([1.0] * 7 + [0.5] * 3 + [2.0, 2.0, 1.5])
    family = list(families)[int(rng.choice(len(families), p=weights / weights.sum()))]
    parameters, signal = families[family]
    return Site(name, family, parameters, signal=signal)


def _affine(rng: np.random.Generator, constant: Number, slope: Number, hypers: list[Site], share: float) -> Affine:
    """A parameter that depends on a hyperparameter, with this probability."""
    if not hypers or rng.random() > share:
        return Affine(constant)
    return Affine(constant, slope, str(_one_of(rng, [site.name for site in hypers])))


def _lead(rng: np.random.Generator) -> tuple[str, str]:
    lead = str(rng.choice(["pairs", "state", "shared"], p=[0.6, 0.2, 0.2]))
    return lead, str(rng.choice(["plates", "own plates", "stack", "expand"], p=[0.5, 0.2, 0.15, 0.15]))


def _one_hot(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Two different next states of every pair."""
    first = rng.integers(shape[0], size=shape)
    second = (first + 1 + rng.integers(shape[0] - 1, size=shape)) % shape[0]
    return np.eye(shape[0])[first], np.eye(shape[0])[second]


def _known_rows(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    rows = rng.integers(1, 6, size=(*shape, shape[0])).astype(float)
    return rows / rows.sum(-1, keepdims=True)


def _draw_rows(rng: np.random.Generator, hypers: list[Site], shape: tuple[int, int]) -> tuple[list[Site], Rows]:
    kind = str(
        rng.choice(["dirichlet", "moves", "logistic", "choice", "blend", "known"], p=[0.5, 0.2, 0.1, 0.1, 0.05, 0.05])
    )
    lead, style = _lead(rng)
    share = 0.7
    if kind == "dirichlet":
        base = rng.choice([0.7, 1.0, 1.5, 2.0, 3.0], size=shape[0])
        slope = rng.choice([0.0, 1.0, 2.0], size=shape[0])
        slope[int(rng.integers(shape[0]))] = 2.5
        return [Site("rows", "Dirichlet", (_affine(rng, base, slope, hypers, share),), lead, style)], Rows(kind, "rows")
    if kind in ("moves", "logistic"):
        tables = _one_hot(rng, shape)
        if kind == "logistic":
            parameters = (_affine(rng, -0.5, 0.8, hypers, share), Affine(1.0))
            return [Site("p", "Normal", parameters, lead, style)], Rows(kind, "p", tables)
        family = str(rng.choice(["Beta", "Logistic normal"], p=[0.8, 0.2]))
        if family == "Beta":
            parameters = (_affine(rng, float(rng.choice([1.0, 2.0])), 1.5, hypers, share), Affine(3.0))
        else:
            parameters = (_affine(rng, -0.5, 0.8, hypers, share), Affine(1.0))
        return [Site("p", family, parameters, lead, style)], Rows(kind, "p", tables)
    if kind == "choice":
        site = Site("kind", "Categorical", (Affine(np.array([0.5, 0.2, 0.3])),))
        return [site], Rows(kind, "kind", tuple(_known_rows(rng, shape) for _ in range(3)))
    if kind == "blend":
        site = Site("w", "Beta", (Affine(2.0), Affine(1.5)))
        return [site], Rows(kind, "w", (_known_rows(rng, shape), _known_rows(rng, shape)))
    return [], Rows(kind, "", (_known_rows(rng, shape),))


def _draw_rewards(rng: np.random.Generator, hypers: list[Site], shape: tuple[int, int]) -> tuple[list[Site], Rewards]:
    names = ("known", "bernoulli", "normal", "poisson", "exponential", "student", "normal gamma", "direct", "ordered")
    names = (*names, "mixture", "logits")
    shares = [0.19, 0.19, 0.19, 0.08, 0.05, 0.08, 0.05, 0.05, 0.04, 0.05, 0.03]
    kind = str(rng.choice(names, p=shares))
    if kind == "direct" and not hypers:
        kind = "normal"
    lead, style = _lead(rng)
    if kind == "known":
        return [], Rewards(kind, known=rng.integers(-2, 3, size=shape).astype(float))
    if kind == "direct":
        return [], Rewards(
            kind, str(_one_of(rng, [site.name for site in hypers])), known=rng.choice([0.5, 1.0, 2.0], size=shape)
        )
    if kind == "bernoulli":
        parameters = (_affine(rng, float(rng.choice([1.0, 2.0])), 1.0, hypers, 0.3), Affine(3.0))
        return [Site("m", "Beta", parameters, lead, style)], Rewards(kind, "m")
    if kind in ("poisson", "exponential"):
        # The mean of an exponential reward, 1 / rate, has four moments under a scale of a half too.
        rate = _affine(rng, 1.0, 0.5, hypers, 0.3)
        parameters = (Affine(2.0), rate) if kind == "poisson" else (Affine(9.0), replace(rate, constant=6.0))
        return [Site("m", "Gamma", parameters, lead, style)], Rewards(kind, "m")
    if kind == "normal gamma":
        tau = Site("tau", "Gamma", (Affine(3.0), Affine(2.0)), lead, style)
        mean = Site("m", "Normal", (Affine(0.5), Spread(2.0, "tau")), lead, style)
        return [tau, mean], Rewards(kind, "m", precision="tau")
    loc = _affine(rng, 0.5, float(rng.choice([-1.0, 1.0])), hypers, 0.4)
    family = "Affine normal" if rng.random() < 0.05 else "Normal"
    return [Site("m", family, (loc, Affine(1.0)), lead, style)], Rewards(kind, "m", known=float(rng.choice([0.7, 1.0])))


BOUNDED = ("Beta", "Dirichlet", "Uniform", "Logistic normal", "Bernoulli", "Categorical", "DiscreteUniform")
NO_SCALE = ("Flat", "Flat unit", "Delta", "Poisson", "Geometric")


def _can_scale(site: Site) -> bool:
    """Whether its density to a power above one has an integral: no concentration below one."""
    first = [x.constant for x in site.parameters if isinstance(x, Affine)]
    return site.family not in NO_SCALE and not (site.family in ("Beta", "Dirichlet", "Gamma") and np.min(first[0]) < 1)


def _plain(site: Site) -> bool:
    return not (site.scale or site.writing or site.fixed or site.mask is not None)


def _alone(site: Site) -> bool:
    """Whether its law depends on no other site."""
    return all(isinstance(x, Affine) and not x.of for x in site.parameters)


def _change(
    rng: np.random.Generator, program: Description, eligible: Callable[[Site], bool], change: Callable[[Site], Site]
) -> Description | None:
    """The program with one eligible site changed; None: there is none."""
    names = [site.name for site in program.sites if eligible(site)]
    if not names:
        return None
    chosen = _one_of(rng, names)
    return replace(program, sites=tuple(change(s) if s.name == chosen else s for s in program.sites))


def _write(words: str) -> Callable[[Site], Site]:
    return lambda site: replace(site, writing=site.writing | {words})


def _scaled(rng: np.random.Generator, site: Site, power: float | np.ndarray | str) -> Site:
    outside = {"plates outside"} if rng.random() < 0.5 else set()
    return replace(site, scale=(*site.scale, power), writing=site.writing | outside)


def _scale(rng: np.random.Generator, program: Description) -> Description | None:
    power = float(rng.choice([0.5, 2.0, 2.0, 3.0]))

    def eligible(site: Site) -> bool:
        return _can_scale(site) and (_plain(site) or (site.writing == {"scan"} and not site.scale))

    changed = _change(rng, program, eligible, lambda s: _scaled(rng, s, power))
    if changed is not None and rng.random() < 0.2:  # one in another
        changed = _change(rng, changed, lambda s: bool(s.scale), lambda s: _scaled(rng, s, 1.5))
    return changed


def _scale_array(rng: np.random.Generator, program: Description) -> Description | None:
    def change(site: Site) -> Site:
        return _scaled(rng, site, rng.choice([1.0, 2.0, 3.0], size=program.lead(site)))

    return _change(rng, program, lambda s: _batched(s) and _can_scale(s) and _plain(s), change)


def _batched(site: Site) -> bool:
    return site.lead != "shared" and site.style != "expand"


def _scale_by_signal(rng: np.random.Generator, program: Description) -> Description | None:
    names = [site.name for site in program.sites if site.signal]
    if not names:
        return None
    return _change(
        rng,
        program,
        lambda s: s.name in ("rows", "p", "m") and _can_scale(s) and _plain(s),
        lambda s: _scaled(rng, s, names[0]),
    )


def _mask(rng: np.random.Generator, program: Description) -> Description | None:
    by = {"law mask"} if rng.random() < 0.4 else set()
    value = bool(rng.random() < 0.15)
    return _change(
        rng,
        program,
        lambda s: s.family in BOUNDED and (_plain(s) or bool(s.scale)) and s.mask is None,
        lambda s: replace(s, mask=value, writing=s.writing | by),
    )


def _mask_array(rng: np.random.Generator, program: Description) -> Description | None:
    def change(site: Site) -> Site:
        mask = rng.random(program.lead(site)) < 0.5
        mask.flat[0], mask.flat[-1] = False, True
        by = {"law mask"} if site.style == "plates" and rng.random() < 0.3 else set()
        return replace(site, mask=mask, writing=site.writing | by | {"plates outside"})

    return _change(rng, program, lambda s: _batched(s) and s.family in BOUNDED and _plain(s), change)


def _fix(kind: str) -> Callable[[np.random.Generator, Description], Description | None]:
    def feature(rng: np.random.Generator, program: Description) -> Description | None:
        def eligible(site: Site) -> bool:
            free = kind in ("condition", "block") or _alone(site)
            bent = kind in ("do",) and not _plain(site)
            return (
                free and not bent and not site.fixed and not site.writing - {"plates outside"} and site.family in VALUES
            )

        def change(site: Site) -> Site:
            value = VALUES[site.family](rng, program, site)
            inside = {"inside"} if kind in ("condition", "substitute", "do") and rng.random() < 0.4 else set()
            return replace(site, fixed=kind, value=value, writing=site.writing | inside)

        return _change(rng, program, eligible, change)

    return feature


def _simplex(rng: np.random.Generator, program: Description, site: Site) -> np.ndarray:
    rows = rng.integers(1, 6, size=(*program.lead(site), program.n_states)).astype(float)
    return rows / rows.sum(-1, keepdims=True)


def _unit(rng: np.random.Generator, program: Description, site: Site) -> np.ndarray:
    return rng.choice([0.2, 0.4, 0.7], size=program.lead(site))


def _positive(rng: np.random.Generator, program: Description, site: Site) -> np.ndarray:
    return rng.choice([0.5, 1.25, 2.0], size=program.lead(site))


def _whole(rng: np.random.Generator, program: Description, site: Site) -> np.ndarray:
    return rng.integers(2, size=program.lead(site))


VALUES: dict[str, Callable[[np.random.Generator, Description, Site], np.ndarray]] = {
    "Dirichlet": _simplex,
    "Beta": _unit,
    "Logistic normal": _unit,
    **dict.fromkeys(
        ("Normal", "Affine normal", "HalfNormal", "Gamma", "LogNormal", "Uniform", "Exponential", "Exp normal"),
        _positive,
    ),
    **dict.fromkeys(("Bernoulli", "Categorical", "DiscreteUniform"), _whole),
}


def _single(
    family: tuple[str, ...], words: str, *, shared: bool = False, alone: bool = False
) -> Callable[[np.random.Generator, Description], Description | None]:
    """A feature that writes one site in another way."""

    def feature(rng: np.random.Generator, program: Description) -> Description | None:
        def eligible(site: Site) -> bool:
            fits = not family or site.family in family
            return fits and _plain(site) and (not shared or site.lead == "shared") and (not alone or _alone(site))

        return _change(rng, program, eligible, _write(words))

    return feature


def _half(words: str) -> Callable[[np.random.Generator, Description], Description | None]:
    """A plate that takes one element of two, drawn or given: the density counts twice."""
    return lambda rng, program: _change(
        rng, program, lambda s: _plain(s) and s.lead == "shared" and _can_scale(s), _write(words)
    )


def _refusing(words: str, why: str) -> Callable[[np.random.Generator, Description], Description | None]:
    """A feature with which a program has no posterior."""

    def feature(rng: np.random.Generator, program: Description) -> Description | None:
        changed = _change(rng, program, lambda s: _plain(s) and s.lead == "shared", _write(words))
        return None if changed is None else replace(changed, refused=why)

    return feature


def _signal(kinds: tuple[str, ...]) -> Callable[[np.random.Generator, Description], Description | None]:
    def feature(rng: np.random.Generator, program: Description) -> Description | None:
        kind = str(_one_of(rng, kinds))
        return _change(rng, program, lambda s: s.signal == "plus" and _plain(s), lambda s: replace(s, signal=kind))

    return feature


def _instead(name: str, *sites: Site) -> Callable[[np.random.Generator, Description], Description | None]:
    """A feature that puts other sites in the place of a hyperparameter."""

    def feature(rng: np.random.Generator, program: Description) -> Description | None:
        if not any(site.name == name and _plain(site) for site in program.sites):
            return None
        index = [site.name for site in program.sites].index(name)
        rest = program.sites
        return replace(program, sites=(*rest[:index], *sites, *rest[index + 1 :]))

    return feature


def _flat(rng: np.random.Generator, program: Description) -> Description | None:
    """An improper mean of rewards: by ImproperUniform, or by a mask."""
    if program.rewards.kind not in ("normal", "student") or not _plain(program.site("m")):
        return None
    mean = program.site("m")
    if rng.random() < 0.5:
        changed = Site("m", "Flat", ())
    else:
        changed = replace(mean, lead="shared", mask=False, parameters=(Affine(0.5), Affine(1.0)), family="Normal")
    return replace(program, sites=tuple(changed if s.name == "m" else s for s in program.sites))


def _flat_unit(rng: np.random.Generator, program: Description) -> Description | None:
    del rng
    if not any(s.name == "p" and s.family == "Beta" and s.lead == "shared" and _plain(s) for s in program.sites):
        return None
    return replace(program, sites=tuple(Site("p", "Flat unit", ()) if s.name == "p" else s for s in program.sites))


def _factor(rng: np.random.Generator, program: Description) -> Description | None:
    if "uncondition" in program.around:
        return None
    of_signal = [s.name for s in program.sites if s.signal]
    bounded = [s.name for s in program.sites if s.family in ("Beta", "Dirichlet", "Logistic normal")]
    if not of_signal and not bounded:
        return None
    if bounded and (not of_signal or rng.random() < 0.6):
        extra = Extra("factor", str(_one_of(rng, bounded)), float(rng.choice([-2.0, 1.0, 2.0])))
    else:
        extra = Extra("factor", str(_one_of(rng, of_signal)), -0.7, signal=True)
    return replace(program, extras=(*program.extras, _bent(rng, extra)))


def _bent(rng: np.random.Generator, extra: Extra) -> Extra:
    if rng.random() < 0.35:
        extra = replace(extra, scale=(float(rng.choice([0.5, 2.0])),))
    if extra.kind != "factor" and rng.random() < 0.2:
        extra = replace(extra, mask=bool(rng.random() < 0.3))
    return extra


def _observed(rng: np.random.Generator, program: Description) -> Description | None:
    if "uncondition" in program.around:
        return None
    of_signal = [s.name for s in program.sites if s.signal]
    bounded = [s.name for s in program.sites if s.family in ("Beta", "Dirichlet", "Logistic normal")]
    if bounded and (not of_signal or rng.random() < 0.6):
        extra = Extra("binomial", str(_one_of(rng, bounded)), float(rng.integers(0, 13)))
    elif of_signal:
        extra = Extra("normal", str(_one_of(rng, of_signal)), 1.8, signal=True)
    else:
        return None
    return replace(program, extras=(*program.extras, _bent(rng, extra)))


def _deterministic(rng: np.random.Generator, program: Description) -> Description | None:
    if not program.sites:
        return None
    name = str(_one_of(rng, [s.name for s in program.sites]))
    return replace(program, extras=(*program.extras, Extra("deterministic", name)))


def _whole_scale(rng: np.random.Generator, program: Description) -> Description | None:
    del rng
    if not program.sites or not all(_can_scale(s) for s in program.sites) or program.around:
        return None
    if any(s.fixed == "do" or {"transform"} & s.writing for s in program.sites):
        return None
    return replace(program, around=("scale",))


def _uncondition(rng: np.random.Generator, program: Description) -> Description | None:
    changed = _observed(rng, replace(program, extras=()))
    if changed is None or program.extras or any(s.fixed for s in program.sites):
        return None
    plain = tuple(replace(extra, scale=(), mask=None) for extra in changed.extras)
    return replace(changed, extras=plain, around=(*program.around, "uncondition"))


def _wrapped(name: str) -> Callable[[np.random.Generator, Description], Description | None]:
    return lambda rng, program: replace(program, around=(*program.around, name)) if program.sites else None


def _reward_mask(rng: np.random.Generator, program: Description) -> Description | None:
    if program.rewards.kind in ("known",):
        return None
    mask = rng.random((program.n_states, program.n_actions)) < 0.5
    mask.flat[0], mask.flat[-1] = False, True
    return replace(program, rewards=replace(program.rewards, mask=mask))


def _too_much(rng: np.random.Generator, program: Description) -> Description | None:
    if program.rows.kind not in ("moves", "blend"):
        return None
    program = replace(program, rows=replace(program.rows, kind="too much"), refused="rows do not sum to one")
    beside = _factor(rng, program) if rng.random() < 0.5 else _scale(rng, program)
    return beside or program


def _random(rng: np.random.Generator, program: Description) -> Description | None:
    if program.rows.kind not in ("moves", "blend"):
        return None
    program = replace(program, extras=(*program.extras, Extra("random")), refused="random numbers that are of no site")
    scaled = _scale(rng, program)
    return scaled if scaled is not None and rng.random() < 0.7 else program


FEATURES: dict[str, tuple[float, Callable[[np.random.Generator, Description], Description | None]]] = {
    "scale": (8.0, _scale),
    "scale by an array": (3.0, _scale_array),
    "scale by a site": (1.5, _scale_by_signal),
    "scale around all": (2.5, _whole_scale),
    "scale by a plate": (2.0, _half("first half")),
    "mask": (4.0, _mask),
    "mask by an array": (3.0, _mask_array),
    "mask of the reward law": (2.0, _reward_mask),
    "condition": (2.5, _fix("condition")),
    "substitute": (3.0, _fix("substitute")),
    "do": (2.0, _fix("do")),
    "block of a fixed site": (1.5, _fix("block")),
    "block": (1.0, _refusing("hidden", "a hidden site has no value")),
    "subsample": (1.5, _half("subsample")),
    "lift": (
        1.5,
        _single(("HalfNormal", "Gamma", "Beta", "Uniform", "Exponential", "Normal"), "lift", shared=True, alone=True),
    ),
    "reparam loc scale": (2.5, _single(("Normal",), "loc scale")),
    "reparam transform": (2.0, _single(("Logistic normal", "Exp normal", "Affine normal", "LogNormal"), "transform")),
    "infer config": (1.0, _single((), "inner config")),
    "infer": (0.7, _single((), "infer")),
    "config around all": (0.7, _wrapped("config")),
    "scope": (1.0, _wrapped("scope")),
    "uncondition": (1.5, _uncondition),
    "own key": (2.0, _single((), "own key")),
    "inner seed": (1.5, _single((), "inner seed")),
    "random numbers": (1.5, _random),
    "factor": (5.0, _factor),
    "observed": (4.0, _observed),
    "deterministic": (1.0, _deterministic),
    "deterministic site": (1.0, _single((), "deterministic")),
    "scan": (
        2.0,
        _instead(
            "h", Site("h", "Normal", (Affine(0.0), Affine(0.5 * 3**0.5)), signal="last", writing=frozenset({"scan"}))
        ),
    ),
    "cond": (1.0, _signal(("cond",))),
    "cond with a site": (
        1.5,
        _instead(
            "h",
            Site("b", "Bernoulli", (Affine(0.4),), signal="plus"),
            Site("h", "Branch", (Affine(0.0, 1.0, "b"),), signal="exp", writing=frozenset({"cond"})),
        ),
    ),
    "improper": (2.0, _flat),
    "improper on the unit interval": (1.0, _flat_unit),
    "Delta": (2.0, _instead("h", Site("h", "Delta", (Affine(3.0),), signal="plus"))),
    "Delta of a site": (1.5, _single((), "delta", shared=True)),
    "support of another site": (
        1.5,
        _instead(
            "h",
            Site("d", "DiscreteUniform", (Affine(1), Affine(3)), signal="plus"),
            Site("h", "DiscreteUniform", (Affine(0), Affine(0, 1.0, "d")), signal="plus"),
        ),
    ),
    "unbounded count": (1.0, _instead("h", Site("h", "Poisson", (Affine(1.2),), signal="plus"))),
    "geometric count": (0.7, _instead("h", Site("h", "Geometric", (Affine(0.6),), signal="plus"))),
    "callback": (3.0, _signal(("callback up", "callback down"))),
    "stop_gradient": (1.5, _signal(("stop",))),
    "too much": (1.5, _too_much),
}
"""What may be around a site: its weight, and how it is put into a program (None: it fits nowhere)."""


SCHEDULE = tuple(name for name, (weight, _) in FEATURES.items() for _ in range(round(2 * weight)))
"""Every feature, as often as its weight says: the seed decides which one a program is written for."""
STRIDE = 71  # coprime with the length of the schedule: seeds that follow each other are of different kinds
assert np.gcd(STRIDE, len(SCHEDULE)) == 1


def _base(rng: np.random.Generator, seed: int) -> Description:
    """A program without features."""
    shape = (int(rng.choice([2, 2, 3])), int(rng.choice([1, 2])))
    hypers = [_hyperparameter(rng, name) for name in ("h", "h2")[: int(rng.choice([0, 1, 2], p=[0.2, 0.6, 0.2]))]]
    sites, rows = _draw_rows(rng, hypers, shape)
    more, rewards = _draw_rewards(rng, hypers, shape)
    used = {x.of for site in (*sites, *more) for x in site.parameters if isinstance(x, Affine)} | {rewards.site}
    # A site that nothing uses is another matter: it is left out.
    kept = [site for site in hypers if site.name in used]
    return Description(seed, *shape, (*kept, *sites, *more), rows, rewards)


def describe(seed: int, attempt: int = 0) -> Description:
    """A random program, without data."""
    rng = np.random.default_rng((seed, attempt))
    first, program = SCHEDULE[seed * STRIDE % len(SCHEDULE)], None
    while program is None:
        program = FEATURES[first][1](rng, _base(rng, seed))
    program = replace(program, features=(first,))
    names = list(FEATURES)
    weights = np.array([FEATURES[name][0] for name in names])
    number_of_features = int(rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15]))
    for _ in range(60):
        if len(program.features) >= number_of_features or program.refused:
            break
        name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
        changed = FEATURES[name][1](rng, program) if name not in program.features else None
        if changed is not None:
            program = replace(changed, features=(*program.features, name))
    return program


__all__ = ["TABLE", "Affine", "Description", "Extra", "Rewards", "Rows", "Site", "Spread", "describe", "text"]
