# pyright: reportOptionalSubscript=false, reportArgumentType=false, reportReturnType=false
# pyright: reportPossiblyUnboundVariable=false
"""Random regressions of rows, and long importance sampling of each by hand, with nothing of the library.

A program is random throughout: states, actions, whether episodes end; numbers and labels as covariates; a formula with
products, with or without a constant; `by=`; the law and its reference, order, link or event; zeros in the support;
priors; groups; standardised columns or not. A part of them is one that has to be refused, by name: a factor of one
level, a column that is constant or a sum of others, a reference that the support rules out, an outcome that a column
separates under a flat prior.

By hand: columns cell by cell from the formula, rows from the predictors, a mode by SciPy, and draws from a Student t
about it, weighted; the scales of groups are drawn with the coefficients.
"""

import itertools
import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit, gammaln, logsumexp, ndtr
from scipy.stats import halfnorm

import bayes_mdp as bm
from bayes_mdp.mdp.contexts import ContextSpace

LAWS = ("logit", "stick", "ordinal", "hazard")
FAULTS = ("one level", "constant", "collinear", "masked reference", "separated")


@dataclass(frozen=True)
class Program:
    """A log, a space, a law, and what is wrong with it.

    Args:
        frame: the log.
        states, actions: labels.
        ends: whether an episode can end.
        covariates: names; those of labels are texts in the log.
        group: the column of groups; None: there is none.
        terms, by: of the design.
        law: one of `LAWS`.
        options: of the law.
        sd: of the prior of the coefficients; infinity: flat.
        support: [S A O]; None: everything is possible.
        fault: one of `FAULTS`; "": nothing.
        column: what a refusal has to name.
    """

    frame: pd.DataFrame
    states: list[str]
    actions: list[str]
    ends: bool
    covariates: list[str]
    group: str | None
    terms: str
    by: str | None
    law: str
    options: dict[str, Any] = field(default_factory=dict)
    sd: float = 2.5
    support: np.ndarray | None = None
    fault: str = ""
    column: str = ""

    @property
    def outcomes(self) -> list[str]:
        """Of a row."""
        return [*self.states, *(["end"] if self.ends else [])]

    def log(self) -> bm.mdp.Log:
        """As a user reads it."""
        roles: dict[str, Any] = {"state": "s", "action": "a", "next_state": "t", "terminated": "dead"}
        names: dict[str, Any] = {"states": self.states, "actions": self.actions}
        log = bm.read_log(self.frame, **roles, **names, covariates=self.covariates, group=self.group)
        assert isinstance(log, bm.mdp.Log)
        return log

    def prior(self, space: ContextSpace) -> bm.models.MDPSpec:
        """As a user writes it."""
        law: Any = {
            "logit": bm.models.logit_rows,
            "stick": bm.models.stick_rows,
            "ordinal": bm.models.ordinal_rows,
            "hazard": bm.models.hazard_rows,
        }[self.law]
        coefficients = dist.ImproperUniform(dist.constraints.real, (), ()) if np.isinf(self.sd) else self._normal
        by = None if self.law == "ordinal" else self.by
        about_law = {name: option for name, option in self.options.items() if name != "standardise"}
        standardise = self.options.get("standardise", True)
        regression = bm.models.RegressionOptions(by=by, group=self.group, standardise=standardise)
        common = {"coefficients": coefficients, "options": regression} | about_law
        if self.law == "hazard":
            even = np.ones(len(self.outcomes)) / len(self.outcomes)
            return bm.models.MDPSpec(law(space, self.terms, even, **common), self.reward)
        return bm.models.MDPSpec(law(space, self.terms, **common), self.reward)

    @property
    def _normal(self) -> dist.Distribution:
        return dist.Normal(0.0, self.sd)

    @property
    def reward(self) -> np.ndarray:
        """[S A], known."""
        return np.zeros((len(self.states), len(self.actions)))


def random_program(seed: int) -> Program:
    """A program, of which about one in four has to be refused.

    Args:
        seed: of the program.
    """
    rng = np.random.default_rng([2026, seed])
    fault = str(rng.choice(FAULTS)) if rng.random() < 0.25 else ""
    law = str(rng.choice(["logit", "stick"] if fault in FAULTS[-2:] else LAWS, p=None))
    law = "logit" if fault == "masked reference" else law
    states = [f"s{i}" for i in range(rng.integers(2, 4))]
    actions = [f"a{i}" for i in range(rng.integers(1, 4))]
    ends = bool(rng.random() < 0.6)
    rows = int(rng.integers(15, 150))
    frame = pd.DataFrame(
        {
            "s": rng.choice(states, rows),
            "a": rng.choice(actions, rows),
            "x": rng.choice([-1.5, 0.0, 2.0, 7.0], rows),
            "z": rng.choice(["u", "v", "w"], rows),
            "w": rng.integers(2, size=rows),
            "site": rng.choice(["p", "q", "r"], rows),
        }
    )
    # Every label is there, so that no factor has fewer levels than meant.
    frame.loc[:2, "z"], frame.loc[:1, "w"], frame.loc[:1, "x"] = ["u", "v", "w"], [0, 1], [-1.5, 2.0]
    names = ["x", "z", "w"]
    pieces = [*names, "state", *(["action"] if len(actions) > 1 else []), "x:w", "z:w", "state:x"]
    by = str(rng.choice(["state", "action"])) if rng.random() < 0.25 and law != "ordinal" else None
    pieces = [each for each in pieces if by is None or by not in each.split(":")]
    chosen = list(rng.choice(pieces, rng.integers(1, min(4, len(pieces)) + 1), replace=False))
    terms = " + ".join((["0"] if rng.random() < 0.2 and law != "ordinal" else []) + [str(x) for x in chosen])
    group = "site" if rng.random() < 0.15 and not fault and law in ("logit", "stick") else None
    covariates = sorted({name for each in chosen for name in str(each).split(":")} & set(names)) or ["x"]
    sd = float(rng.choice([1.0, 2.5]))
    outcomes = [*states, *(["end"] if ends else [])]
    options, support = _law_options(rng, law, states, outcomes, len(actions))
    options["standardise"] = bool(rng.random() < 0.5)
    program = Program(frame, states, actions, ends, covariates, group, terms, by, law, options, sd, support, fault)
    return _with_outcomes(_broken(program), rng)


def _law_options(rng, law, states, outcomes, num_actions):
    """Options of a law, and a support that its reference allows."""
    support, options = None, {}
    if rng.random() < 0.35:
        support = rng.random((len(states), num_actions, len(outcomes))) > 0.3
        support[..., 0] = True
        if law in ("ordinal", "hazard"):
            support[..., : len(states)] = True
    if law == "logit":
        kind = rng.choice(["label", "stay", "last"])
        if kind == "stay":
            options["reference"] = "stay"
            if support is not None:
                support[np.arange(len(states)), :, np.arange(len(states))] = True
        else:
            options["reference"] = states[0] if kind == "label" or support is not None else outcomes[-1]
    elif law == "stick":
        options["order"] = [str(x) for x in rng.permutation(outcomes)]
    elif law == "ordinal":
        options["link"] = str(rng.choice(["logit", "probit"]))
        support = None
    else:
        options["link"] = str(rng.choice(["cloglog", "logit"]))
        options["event"] = "leave" if "end" not in outcomes or rng.random() < 0.5 else "end"
        support = None
    return options, support


def _broken(program: Program) -> Program:
    """With its fault, and the word that has to be named."""
    frame, fault = program.frame, program.fault
    more = sorted({*program.covariates, "x"})
    if fault == "one level":
        return replace(
            program, frame=frame.assign(z="u"), covariates=sorted({*more, "z"}), terms="x + z", by=None, column="z"
        )
    if fault == "constant":
        return replace(
            program, frame=frame.assign(w=3), covariates=sorted({*more, "w"}), terms="x + w", by=None, column="w"
        )
    if fault == "collinear":
        frame = frame.assign(twice=3.0 - 2.0 * frame["x"])
        terms = "x + twice"
        return replace(program, frame=frame, covariates=["twice", "x"], terms=terms, by=None, column="twice")
    if fault == "masked reference":
        support = np.ones((len(program.states), len(program.actions), len(program.outcomes)), bool)
        support[0, 0, -1] = False
        options = program.options | {"reference": program.outcomes[-1]}
        return replace(program, support=support, options=options, column=program.outcomes[-1])
    if fault == "separated":
        return replace(
            program, sd=np.inf, terms="x + w", by=None, covariates=["w", "x"], group=None, support=None, column="w"
        )
    return program


def _with_outcomes(program: Program, rng: np.random.Generator) -> Program:
    """Outcomes by an ordinary law; of a separated program w alone decides between the first two."""
    frame, number = program.frame, len(program.outcomes)
    place = {name: i for i, name in enumerate(program.states)}
    doing = {name: i for i, name in enumerate(program.actions)}
    weight = rng.dirichlet(np.ones(number), (len(program.states), len(program.actions)))
    if program.support is not None:
        weight = np.where(program.support, weight + 1e-3, 0.0)
    if program.law == "ordinal":
        weight[..., len(program.states) :] = 0.0
    weight /= weight.sum(-1, keepdims=True)
    chosen = [
        int(rng.choice(number, p=weight[place[s], doing[a]])) for s, a in zip(frame["s"], frame["a"], strict=True)
    ]
    if program.fault == "separated":
        first = program.options.get("reference", "stay") if program.law == "logit" else None
        chosen = [int(w) for w in frame["w"]]
        if first == "stay":
            frame = frame.assign(s=program.states[0])
    reached = [program.outcomes[k] for k in chosen]
    dead = [name == "end" for name in reached]
    frame = frame.assign(
        t=[program.states[0] if end else name for name, end in zip(reached, dead, strict=True)], dead=dead
    )
    return replace(program, frame=frame)


class ByHand:
    """The posterior of a program by importance sampling, cell by cell.

    Args:
        program: without a fault.
    """

    def __init__(self, program: Program) -> None:
        self.program, frame = program, program.frame
        columns = [*program.covariates, *([program.group] if program.group else [])]
        self.patterns = [tuple(x) for x in sorted(set(zip(*(frame[c] for c in columns), strict=True)))]
        self.levels = {c: sorted(set(frame[c])) for c in columns}
        self.cells = list(itertools.product(range(len(self.patterns)), program.states, program.actions))
        self.columns = columns
        number = {pattern: i for i, pattern in enumerate(self.patterns)}
        self.counts = np.zeros((len(self.cells), len(program.outcomes)))
        where = {cell: i for i, cell in enumerate(self.cells)}
        pattern_of = [number[tuple(x)] for x in zip(*(frame[c] for c in columns), strict=True)]
        for pattern, s, a, t, dead in zip(pattern_of, frame["s"], frame["a"], frame["t"], frame["dead"], strict=True):
            outcome = len(program.states) if dead else program.states.index(t)
            self.counts[where[pattern, s, a], outcome] += 1
        self.design = self._design(np.bincount(pattern_of, minlength=len(self.patterns)))
        self.possible = np.ones((len(self.cells), len(program.outcomes)), bool)
        if program.support is not None:
            for i, (_, s, a) in enumerate(self.cells):
                self.possible[i] = program.support[program.states.index(s), program.actions.index(a)]

    def _design(self, rows_of_patterns: np.ndarray) -> np.ndarray:
        """[cell, column], standardised where the program is."""
        program = self.program
        parts = [x.strip() for x in program.terms.split("+")]
        constant = "0" not in parts and program.law != "ordinal"
        terms = [x for x in parts if x not in ("0", "1")]
        plain = []
        for pattern, s, a in self.cells:
            values = dict(zip(self.columns, self.patterns[pattern], strict=True)) | {"state": s, "action": a}
            row = [1.0] if constant else []
            for term in terms:
                product = [1.0]
                for name in term.split(":"):
                    known = {"state": program.states, "action": program.actions}.get(name, self.levels.get(name))
                    value = values[name]
                    here = [float(value == x) for x in known[1:]] if isinstance(value, str) else [float(value)]
                    product = [p * h for p in product for h in here]
                row += product
            plain.append(row)
        x = np.array(plain)
        if program.options["standardise"]:
            weight = np.array([rows_of_patterns[pattern] for pattern, _, _ in self.cells], float)
            weight /= weight.sum()
            mean = weight @ x
            if constant:
                spread = np.sqrt(weight @ (x - mean) ** 2)
                x[:, 1:] = (x[:, 1:] - mean[1:]) / spread[1:]
            else:
                x = x / np.sqrt(weight @ x**2)
        if program.by is None:
            return x
        labels = program.states if program.by == "state" else program.actions
        at = 1 if program.by == "state" else 2
        return np.concatenate(
            [x * np.array([[float(cell[at] == label)] for cell in self.cells]) for label in labels], 1
        )

    @property
    def predictors(self) -> int:
        """K, columns of coefficients."""
        program, number = self.program, len(self.program.outcomes)
        if program.law in ("ordinal", "hazard"):
            return 1
        if program.law == "stick":
            return number - 1
        return len(self._free)

    @property
    def _free(self) -> list[int]:
        """Outcomes with a predictor of their own in some cell, of a softmax."""
        return [k for k in range(len(self.program.outcomes)) if (self.possible[:, k] & (self._reference != k)).any()]

    @property
    def _reference(self) -> np.ndarray:
        """The reference of each cell."""
        program, name = self.program, self.program.options["reference"]
        return np.array([program.outcomes.index(s if name == "stay" else name) for _, s, _ in self.cells])

    @property
    def size(self) -> int:
        """Numbers of a point, without groups: coefficients, then cuts as they are transformed."""
        cuts = len(self.program.states) - 1 if self.program.law == "ordinal" else 0
        return self.design.shape[1] * self.predictors + cuts

    def rows(self, points: np.ndarray, intercepts: np.ndarray | None = None) -> np.ndarray:
        """[N, cell, outcome] at some points; `intercepts` [N, G, K] of the groups."""
        program = self.program
        p, k = self.design.shape[1], self.predictors
        b = points[:, : p * k].reshape(len(points), p, k)
        eta = self.design @ b
        if intercepts is not None:
            place = self.columns.index(program.group)
            group = [self.levels[program.group].index(self.patterns[c][place]) for c, _, _ in self.cells]
            eta = eta + intercepts[:, group]
        return getattr(self, f"_{program.law}")(eta, points[:, p * k :])

    def _logit(self, eta: np.ndarray, rest: np.ndarray) -> np.ndarray:
        del rest
        full = np.zeros((*eta.shape[:2], len(self.program.outcomes)))
        full[..., self._free] = eta
        full[:, np.arange(len(self.cells)), self._reference] = 0.0
        full = np.where(self.possible, full, -np.inf)
        odds = np.exp(full - full.max(-1, keepdims=True))
        return odds / odds.sum(-1, keepdims=True)

    def _stick(self, eta: np.ndarray, rest: np.ndarray) -> np.ndarray:
        del rest
        rows = np.zeros((*eta.shape[:2], len(self.program.outcomes)))
        order = [self.program.outcomes.index(name) for name in self.program.options["order"]]
        for i in range(len(self.cells)):
            left = np.ones(len(eta))
            last = [k for k in order if self.possible[i, k]][-1]
            for j, k in enumerate(order):
                if k == last:
                    rows[:, i, k] = left
                    break
                if self.possible[i, k]:
                    rows[:, i, k] = left * expit(eta[:, i, j])
                    left = left * expit(-eta[:, i, j])
        return rows

    def _ordinal(self, eta: np.ndarray, rest: np.ndarray) -> np.ndarray:
        # The first cut, then logarithms of the steps.
        steps = np.concatenate([rest[:, :1], np.exp(rest[:, 1:])], 1)
        cuts = np.cumsum(steps, 1)[:, None, :]
        below = (expit if self.program.options["link"] == "logit" else ndtr)(cuts - eta)
        edges = np.concatenate([np.zeros((*eta.shape[:2], 1)), below, np.ones((*eta.shape[:2], 1))], -1)
        rows = np.diff(edges, axis=-1)
        return rows if not self.program.ends else np.concatenate([rows, np.zeros((*rows.shape[:2], 1))], -1)

    def _hazard(self, eta: np.ndarray, rest: np.ndarray) -> np.ndarray:
        del rest
        options, number = self.program.options, len(self.program.outcomes)
        hazard = -np.expm1(-np.exp(eta[..., 0])) if options["link"] == "cloglog" else expit(eta[..., 0])
        rows = np.zeros((*hazard.shape, number))
        for i, (_, s, _) in enumerate(self.cells):
            event = self.program.outcomes.index(s if options["event"] == "leave" else "end")
            happens = 1 - hazard[:, i] if options["event"] == "leave" else hazard[:, i]
            rows[:, i] = (1 - happens)[:, None] / (number - 1)
            rows[:, i, event] = happens
        return rows

    def log_density(self, points: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
        """Log of prior times likelihood; with `scale` [N 1 K] points end with the intercepts, in units of it."""
        intercepts, extra = None, 0.0
        if scale is not None:
            number = len(self.levels[self.program.group]) * self.predictors
            unit = points[:, -number:].reshape(len(points), -1, self.predictors)
            intercepts, extra = unit * scale, _normal(points[:, -number:], 1.0)
            points = points[:, :-number]
        number = self.design.shape[1] * self.predictors
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(self.rows(points, intercepts), 1e-300))
        prior = _normal(points[:, :number], self.program.sd) + _normal(points[:, number:], 2.5)
        return prior + extra + (logs * self.counts).sum((1, 2))

    def moments(self, rng: np.random.Generator, draws: int = 20_000) -> tuple[np.ndarray, np.ndarray, float]:
        """Posterior mean and sd of all rows [cell, outcome], and how many independent draws they are worth."""
        if self.program.group is None:
            points, weight = weighted(rng, self.log_density, self.size, draws, 2)
            return _moments(self.rows(points), weight)
        # The scales of the groups ~ HalfNormal(1) are drawn with the rest, on the line.
        number, scales = len(self.levels["site"]) * self.predictors, self.predictors

        def together(points: np.ndarray) -> np.ndarray:
            line = points[:, -scales:]
            prior = (halfnorm.logpdf(np.exp(line)) + line).sum(1)
            return self.log_density(points[:, :-scales], np.exp(line)[:, None]) + prior

        points, weight = weighted(rng, together, self.size + number + scales, 2 * draws, 8, 12.0)
        intercepts = points[:, -number - scales : -scales].reshape(len(points), -1, scales)
        rows = self.rows(points[:, : -number - scales], intercepts * np.exp(points[:, None, -scales:]))
        return _moments(rows, weight)


def _normal(x: np.ndarray, sd: float) -> np.ndarray:
    return -0.5 * ((x / sd) ** 2).sum(1) - x.shape[1] * np.log(sd * np.sqrt(2 * np.pi))


def _moments(rows: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    mean = np.einsum("n,nco->co", weight, rows)
    variance = np.einsum("n,nco->co", weight, (rows - mean) ** 2)
    return mean, np.sqrt(variance), 1.0 / (weight**2).sum()


def weighted(
    rng: np.random.Generator, log_density: Any, size: int, draws: int, turns: int, degrees: float = 5.0, wider=1.25
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a Student t about the mode, and their weights; its shape is learnt in the first rounds."""
    mode = minimize(lambda x: -log_density(x[None])[0], np.zeros(size), method="BFGS").x
    step, eye = 1e-3, np.eye(size)
    pairs = [(i, j) for i in range(size) for j in range(i, size)]
    corners = [(a * eye[i] + b * eye[j]) * step for i, j in pairs for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
    heights = log_density(mode + np.array(corners)).reshape(-1, 4) @ [1, -1, -1, 1] / (4 * step**2)
    hessian = np.zeros((size, size))
    for (i, j), height in zip(pairs, heights, strict=True):
        hessian[i, j] = hessian[j, i] = -height
    values, vectors = np.linalg.eigh(hessian)
    centre, root = mode, vectors / np.sqrt(np.maximum(values, 1e-2))
    for turn in range(turns):
        z = rng.standard_normal((draws, size))
        wide = wider * np.sqrt(degrees / rng.chisquare(degrees, draws))
        points = centre + (z @ root.T) * wide[:, None]
        square = ((wide[:, None] * z / wider) ** 2).sum(1)
        proposal = gammaln((degrees + size) / 2) - gammaln(degrees / 2) - 0.5 * size * np.log(degrees * np.pi)
        proposal -= np.linalg.slogdet(root)[1] + size * np.log(wider)
        proposal = proposal - 0.5 * (degrees + size) * np.log1p(square / degrees)
        logs = log_density(points) - proposal
        weight = np.exp(logs - logsumexp(logs))
        if turn < turns - 1:
            # Of few good draws the shape would be theirs alone: weights to a power, at which enough of them count.
            power, bent = 1.0, weight
            while 1.0 / (bent**2).sum() < 20 * size:
                power *= 0.8
                bent = np.exp(power * logs - logsumexp(power * logs))
            centre = bent @ points
            away = points - centre
            root = np.linalg.cholesky((bent[:, None] * away).T @ away + 1e-12 * eye)
    return points, weight


def named(message: str, program: Program) -> bool:
    """Whether a refusal names what is at fault."""
    return re.search(rf"\b{re.escape(program.column)}\b", message) is not None
