"""Covariates of a log: contexts, their counts, designs, and what is refused."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import itertools

import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import Counts, split_log
from bayes_mdp.mdp.contexts import ContextSpace

ROLES = {"state": "s", "action": "a", "next_state": "t"}


def table(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    """Twelve subjects of five rows: age (number) and sex (label) fixed, load varying, three sites."""
    rng = np.random.default_rng(seed)
    subject = np.repeat(np.arange(rows // 5), 5)
    columns = {name: rng.choice(["well", "ill"], rows) for name in ("s", "t")}
    return pd.DataFrame(
        columns
        | {"a": rng.choice(["wait", "treat"], rows), "id": subject}
        | {"age": rng.integers(3, size=rows // 5)[subject] / 2, "sex": rng.choice(["f", "m"], rows // 5)[subject]}
        | {"site": rng.choice(["x", "y", "z"], rows // 5)[subject], "load": rng.normal(size=rows).round(1)}
    )


def log_of(frame: pd.DataFrame, **options):
    given = {"subject": "id", "covariates": ["age", "sex"], "group": "site"} | options
    return bm.read_log(frame, **ROLES, **given)


def test_contexts_are_the_distinct_patterns_with_their_numbers():
    frame = table()
    log = log_of(frame)
    contexts = log.covariates.contexts
    patterns = frame.groupby(["age", "sex", "site"]).size()
    assert len(contexts) == len(patterns)
    for i, label in enumerate(contexts.labels):
        assert contexts.transitions[i] == patterns[tuple(label)]
    first = frame.groupby("id").first().groupby(["age", "sex", "site"]).size()
    assert contexts.subjects.tolist() == [first[tuple(label)] for label in contexts.labels]
    assert contexts.column("age").levels is None and contexts.column("sex").levels == ("f", "m")
    assert "contexts of age (fixed, numbers), sex (fixed, 'f', 'm')" in str(log)
    # Every transition is in the context of its row.
    for name in ("age", "sex", "site"):
        assert list(contexts[name][log.covariates.index]) == frame[name].tolist()


def test_a_log_without_covariates_is_as_before():
    log = bm.read_log(table(), **ROLES)
    assert log.covariates is None and type(bm.StateActionSpace.from_log(log)) is bm.StateActionSpace


def test_text_files_are_read_like_frames(tmp_path):
    frame = table()
    frame.to_csv(tmp_path / "log.csv", index=False)
    one, other = log_of(frame), log_of(tmp_path / "log.csv")
    assert one.covariates.contexts.labels == other.covariates.contexts.labels
    assert one.covariates.index.tolist() == other.covariates.index.tolist()


@pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable"])
def test_columns_of_every_backend_of_pandas_are_the_same_log(backend, tmp_path):
    pytest.importorskip("pyarrow")
    table().to_csv(tmp_path / "log.csv", index=False)
    frame = pd.read_csv(tmp_path / "log.csv", dtype_backend=backend)
    plain, other = log_of(table()), log_of(frame)
    assert other.covariates.contexts.labels == plain.covariates.contexts.labels
    assert [c.levels for c in other.covariates.contexts.columns] == [None, ("f", "m"), ("x", "y", "z")]
    assert other.covariates.index.tolist() == plain.covariates.index.tolist()
    # Numbers that are text are numbers, whatever the text is.
    text = frame.assign(age=frame["age"].astype(str).astype(frame["sex"].dtype))
    assert log_of(text).covariates.contexts.labels == plain.covariates.contexts.labels


def test_the_order_of_rows_and_of_categories_changes_no_counts():
    frame = table()
    space = bm.StateActionSpace.from_log(log_of(frame))
    shuffled = log_of(frame.sample(frac=1.0, random_state=1))

    def counts(log):
        moved = log.covariates.moved(log.transitions, 2)
        return np.asarray(Counts.of(moved, space.side_by_side).transitions)

    assert (counts(log_of(frame)) == counts(shuffled)).all()
    ordered = frame.assign(sex=pd.Categorical(frame["sex"], categories=["m", "f"]))
    assert log_of(ordered).covariates.contexts.column("sex").levels == ("m", "f")


def test_parts_of_a_log_keep_the_contexts(key):
    log = log_of(table())
    one, other = split_log(key, log)
    whole = log.covariates.contexts
    for part in (one, other):
        assert part.covariates.contexts.labels == whole.labels
        assert len(part.covariates.index) == len(part.transitions.state)
    total = one.covariates.contexts.transitions + other.covariates.contexts.transitions
    assert (total == whole.transitions).all()


def test_side_by_side_nothing_leads_from_one_context_into_another():
    space = bm.StateActionSpace.from_log(log_of(table()), ends=True)
    assert isinstance(space, ContextSpace)
    wide, size = space.side_by_side, space.n_contexts
    assert wide.n_states == 2 * size
    for c, s in itertools.product(range(size), range(2)):
        assert wide.successors[2 * c + s, 0].tolist() == [2 * c, 2 * c + 1, 2 * size]
    assert wide.state_names[3] == (*space.contexts.labels[1], "well") or wide.state_names[3][-1] == "well"


def test_masks_are_those_of_every_context():
    support = np.array([[[True, False]] * 2, [[True, True]] * 2])
    log = log_of(table().assign(t=lambda x: x["s"]).assign(s="ill", t="ill"), group=None)
    legal = np.array([[True, True]])
    space = bm.StateActionSpace.from_log(log, legal=legal)
    assert space.side_by_side.legal.shape == (space.n_contexts, 2)
    whole = ContextSpace.over(bm.StateActionSpace.from_log(log_of(table(), group=None)), space.contexts)
    masked = ContextSpace(2, 2, contexts=whole.contexts, support=support)
    assert (masked.side_by_side.successors[::2, :, 1] == -1).all()


def test_a_design_by_hand():
    log = log_of(table())
    space = bm.StateActionSpace.from_log(log)
    design = space.design("age + sex:action + state")
    assert design.names == ("constant", "age", "sex=m:action=wait", "state=well")
    contexts = space.contexts
    for c, s, a in itertools.product(range(len(contexts)), range(2), range(2)):
        male = contexts["sex"][c] == "m"
        expected = [1.0, contexts["age"][c], float(male and a == 1), float(s == 1)]
        assert design.values[c, s, a].tolist() == expected
    # Standardised by the log: mean 0 and spread 1 over its rows, states and actions alike.
    weight = contexts.transitions[:, None, None, None] / contexts.transitions.sum() / 4
    mean = (weight * design.standardised).sum((0, 1, 2))
    np.testing.assert_allclose(mean, [1, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose((weight * design.standardised**2).sum((0, 1, 2)), 1.0, atol=1e-12)


@pytest.mark.parametrize("by", [None, "state", ["state", "action"]])
def test_coefficients_of_standardised_columns_on_their_own_scale_say_the_same(by):
    space = bm.StateActionSpace.from_log(log_of(table()))
    design = space.design("age + sex", by=by)
    blocks = {None: 1, "state": 2}.get(by if isinstance(by, (str, type(None))) else "", 4)
    assert len(design.names) == 3 * blocks
    b = np.random.default_rng(0).normal(size=(7, len(design.names), 2))
    own = design.on_own_scale(b)
    np.testing.assert_allclose(
        np.einsum("csap,npk->ncsak", design.standardised, b),
        np.einsum("csap,npk->ncsak", design.values, own),
        atol=1e-9,
    )


@pytest.mark.parametrize("by", ["state", "action", ["state", "action"]])
def test_blocks_have_coefficients_of_their_own(by):
    """In each block its columns are those of a design without blocks, and all others are 0: nothing is shared."""
    space = bm.StateActionSpace.from_log(log_of(table()))
    alone, design = space.design("age + sex"), space.design("age + sex", by=by)
    width, blocks = len(alone.names), len(design.names) // len(alone.names)
    for s, a in itertools.product(range(2), range(2)):
        here = {"state": s, "action": a}.get(by if isinstance(by, str) else "", 2 * s + a)
        expected = np.zeros((space.n_contexts, blocks, width))
        expected[:, here] = alone.standardised[:, s, a]
        np.testing.assert_allclose(design.standardised[:, s, a], expected.reshape(-1, blocks * width), atol=1e-12)
        cells = np.arange(space.n_contexts), np.full(space.n_contexts, s), np.full(space.n_contexts, a)
        np.testing.assert_allclose(design.standardise(design.rows(cells)), design.standardised[:, s, a], atol=1e-12)


def test_products_of_columns_do_not_depend_on_how_they_are_summed(monkeypatch):
    from bayes_mdp.mdp import design as module

    space = bm.StateActionSpace.from_log(log_of(table()))
    whole = space.design("age + sex + age:action")
    monkeypatch.setattr(module, "BLOCK", 3)
    parts = bm.StateActionSpace.from_log(log_of(table())).design("age + sex + age:action")
    np.testing.assert_allclose(parts.spread, whole.spread, rtol=1e-12)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)


@pytest.mark.parametrize(
    ("terms", "by", "message"),
    [
        ("agee", None, "terms has 'agee'.*did you mean 'age'"),
        ("age + age", None, "terms has 'age' twice"),
        ("age + ", None, "expected a term on each side"),
        ("0", None, "expected at least one column"),
        ("state", "state", "by= gives it its own coefficients"),
        ("age", "sex", "expected 'state', 'action'"),
        ("age + twice", None, "column 'twice' is a sum of multiples of 'constant', 'age'"),
        ("one + age", None, "column 'one' is 1 everywhere in the log"),
    ],
)
def test_designs_that_are_none_name_their_column(terms, by, message):
    frame = table().assign(twice=lambda x: 2 * x["age"] + 1, one=1.0)
    space = bm.StateActionSpace.from_log(log_of(frame, covariates=["age", "sex", "twice", "one"]))
    with pytest.raises(ValueError, match=message):
        space.design(terms, by=by)


def changed(**cells):
    """The table with one cell of some columns changed."""
    frame = table()
    for name, (row, value) in cells.items():
        frame[name] = frame[name].astype(object)
        frame.loc[row, name] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "options", "kind", "message"),
    [
        (changed(age=(7, 9.0)), {}, ValueError, "row 8: covariate 'age' is 9, and .* in row 6 of the same subject"),
        (changed(sex=(3, None)), {}, ValueError, "row 4: covariate 'sex' is empty"),
        (changed(id=(2, None)), {}, ValueError, "row 3: subject 'id' is empty"),
        (table(), {"covariates": ["agee"]}, ValueError, "no column 'agee'.*did you mean 'age'"),
        (table(), {"covariates": "age"}, TypeError, r"expected a list of columns: \['age'\]"),
        (table(), {"varying": ["load"]}, ValueError, "process is None, expected what moves them"),
        (table(), {"varying": ["load"], "process": "state"}, ValueError, "what actions move is part of the state"),
        (table(), {"varying": ["load"], "process": "no"}, ValueError, "process is 'no'"),
        (table(), {"process": "known"}, ValueError, "varying is None"),
        (table(), {"varying": ["age"], "process": "known"}, ValueError, "column 'age' is given twice"),
        (table(), {"chunksize": 10, "states": ["ill"], "actions": ["wait"]}, ValueError, "with chunksize"),
    ],
)
def test_bad_columns_are_named(frame, options, kind, message):
    with pytest.raises(kind, match=message):
        log_of(frame, **options)


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("age", {1.0: "unknown"}, "'age' is read as labels, because 'unknown' .* is no number, while most of its 2"),
        ("age", {0.0: "0", 1.0: "1,5"}, "'age' is read as labels, because '1,5'"),
        ("sex", {"f": "F", "x": "f"}, "labels '[fF]' .* and '[fF]' .* may be two spellings of one"),
        ("site", {"x": "West 1", "y": "west-1"}, "'site' has the labels .*[wW]est.1'.* two spellings"),
    ],
)
def test_labels_that_may_be_numbers_or_one_label_are_told(name, words, message):
    frame = table()
    if name == "sex":
        frame["sex"] = np.where(frame["id"] % 3, frame["sex"], "x")
    frame[name] = pd.Series([words.get(cell, cell) for cell in frame[name]], dtype=object)
    with pytest.warns(UserWarning, match=message):
        log_of(frame)
    # Who says that they are labels reads no warning (warnings are errors here).
    assert log_of(frame.astype({name: "category"})).covariates.contexts.column(name).levels is not None


def test_a_covariate_that_varies_needs_no_subject_rule():
    log = log_of(table(), varying=["load"], process="known")
    assert log.covariates.contexts.column("load").kind == "varying" and log.covariates.contexts.process == "known"


@pytest.mark.parametrize(
    ("new", "kind", "message"),
    [
        ({"age": 1.0, "sex": "x", "site": "x"}, ValueError, "covariate 'sex' is 'x', expected a level of the log"),
        ({"age": 1.0, "site": "x"}, ValueError, "no column 'sex'"),
        ({"age": "old", "sex": "f", "site": "x"}, TypeError, "covariate 'age' has .*, expected numbers"),
        ({"age": np.nan, "sex": "f", "site": "x"}, ValueError, "covariate 'age' is empty"),
        ({"age": np.inf, "sex": "f", "site": "x"}, ValueError, "covariate 'age' is inf"),
        ({"age": 1.0, "sex": "f", "site": "w"}, ValueError, "covariate 'site' is 'w'"),
    ],
)
def test_unknown_levels_are_refused_at_prediction(new, kind, message):
    contexts = log_of(table()).covariates.contexts
    with pytest.raises(kind, match=message):
        contexts.read(new)


def test_new_contexts_are_standardised_as_the_log():
    space = bm.StateActionSpace.from_log(log_of(table()))
    other = ContextSpace.over(space, space.contexts.read({"age": 40.0, "sex": "f", "site": "y"}))
    design, whole = other.design("age + sex"), space.design("age + sex")
    assert (design.mean == whole.mean).all() and (design.spread == whole.spread).all()
    assert design.values[0, 0, 0, 1] == 40.0


def test_a_space_with_contexts_has_no_horizon():
    with pytest.raises(ValueError, match="a varying covariate"):
        bm.StateActionSpace.from_log(log_of(table()), horizon=3)
