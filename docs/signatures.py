"""Signatures of the reference as they are written in the source: a type that has a name is printed by its name.

Python replaces a name such as `Key` by what it stands for before autodoc sees it, so that every function with a key
began with three types of arrays. The text of a type is therefore searched for the texts of the named types.
"""

from types import ModuleType

import sphinx.util.inspect
import sphinx.util.typing
from jaxtyping import PRNGKeyArray
from sphinx.ext.autodoc._dynamic import _loader

from bayes_mdp.behaviour.behaviour_model import Support
from bayes_mdp.mdp.agent import ReplanLike
from bayes_mdp.mdp.objectives import Objective
from bayes_mdp.mdp.protocols import PolicyLike
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils import typing

NAMES = {
    "Key": PRNGKeyArray,
    "Prior": Prior,
    "Objective": Objective,
    "PolicyLike": PolicyLike,
    "ReplanLike": ReplanLike,
    "Support": Support,
} | {name: kind for name, kind in vars(typing).items() if name.endswith(("Like", "Scalar", "Labels"))}
"""The short names, and what each stands for."""
WHOLE_TEXT = sphinx.util.typing.stringify_annotation


def _texts(mode: str) -> dict[str, str]:
    """What each named type is printed as, the longest first: one may be a part of another."""
    texts = {WHOLE_TEXT(kind, mode): name for name, kind in NAMES.items()}
    return dict(sorted(texts.items(), key=lambda pair: -len(pair[0])))


TEXTS = {mode: _texts(mode) for mode in ("fully-qualified", "fully-qualified-except-typing", "smart")}


def text_of_type(annotation: object, /, mode: str = "fully-qualified-except-typing", **options: bool) -> str:
    """A type as text, with short names.

    Args:
        annotation: the type.
        mode: of Sphinx: how modules are written.
        options: of Sphinx.
    """
    text = WHOLE_TEXT(annotation, mode, **options)
    for whole, name in TEXTS[mode].items():
        text = text.replace(whole, name)
    return text.replace("jaxlib._jax.Array", "Array")


def without_factories(
    app: object, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """A field that is made anew for each record is `...`: `<factory>` is no Python, and the types lost their links."""
    del app, what, name, obj, options
    return signature and signature.replace("<factory>", "..."), returned


def use_short_names() -> None:
    """Sphinx writes all signatures by `text_of_type`."""
    modules: tuple[ModuleType, ...] = (sphinx.util.inspect, _loader)
    for module in modules:
        module.stringify_annotation = text_of_type
