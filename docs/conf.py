"""Sphinx configuration; from the root of the checkout:

    python -m sphinx -W --keep-going -b html docs docs/_build/html

Two variables of the environment change what a build does:

* `BAYES_MDP_DOCS_RUN=K/N` runs the notebooks of one part of N alone and shows the others without outputs; `0/0` none.
* `BAYES_MDP_DOCS_ONLINE=1` links names of NumPy, JAX and others to their own sites, whose lists of names it fetches.
"""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import bibliography_style  # noqa: E402, F401  (registers the style "keys")
from api_pages import as_rst, cite_keys, write_api_pages  # noqa: E402
from notebooks import notebooks_to_leave  # noqa: E402
from search_words import with_search_words  # noqa: E402
from signatures import use_short_names, without_factories  # noqa: E402
from stored_pages import write_measured_pages, write_paper_tables  # noqa: E402

import bayes_mdp  # noqa: E402

project = "bayes_mdp"
author = "The bayes_mdp developers"
copyright = author
version = release = bayes_mdp.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinxcontrib.bibtex",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "papers/tables", "measured/*_table.md"]
templates_path: list[str] = []

# Pages are Markdown (MyST). Pages with a `kernelspec` are notebooks as text: the build runs them and keeps the outputs
# in `_build/.jupyter_cache`, so that a second build runs only what has changed. A cell that fails is an error.
os.environ["BAYES_MDP_PROGRESS"] = "off"  # of notebooks
os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")  # of NumPyro's bars
nb_execution_mode = "cache"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_in_temp = True  # files that a page writes do not end up in the checkout
nb_merge_streams = True
nb_execution_excludepatterns = notebooks_to_leave(DOCS, os.environ.get("BAYES_MDP_DOCS_RUN", "0/1"))
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

# The reference is made from the `__all__` of every package. Docstrings are plain text with `code` and Google sections.
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
default_role = "py:obj"  # `name` in a docstring links to `name` where the reference has it, and is code where not
suppress_warnings = [
    "ref.python",  # a short name that several classes have
    "myst-nb.lexer",  # a notebook that was not run does not say its language
]

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "keys"
bibtex_reference_style = "label"

intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "xarray": ("https://docs.xarray.dev/en/stable", None),
    "jax": ("https://docs.jax.dev/en/latest", None),
    "numpyro": ("https://num.pyro.ai/en/stable", None),
    "arviz": ("https://python.arviz.org/en/stable", None),
    "gymnasium": ("https://gymnasium.farama.org", None),
    "matplotlib": ("https://matplotlib.org/stable", None),
}
if os.environ.get("BAYES_MDP_DOCS_ONLINE", "0") != "1":
    intersphinx_mapping = {}  # a build needs no network

copybutton_prompt_text = r">>> |\.\.\. "  # examples are copied without their prompts
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"bayes_mdp {release}"
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_search_scorer = str(DOCS / "search_scorer.js")

write_api_pages(DOCS / "reference" / "api")
write_paper_tables(DOCS / "papers" / "tables", stored=DOCS.parent / "reproductions" / "stored")
BENCHMARKS = DOCS.parent / "benchmarks"
write_measured_pages(DOCS / "measured", record=BENCHMARKS / "record.json", validation=BENCHMARKS / "validation")


def setup(app) -> None:
    """Pages cite by [KEY]; docstrings are made fit for reStructuredText before napoleon reads their sections."""
    app.connect("source-read", cite_keys)
    app.connect("source-read", with_search_words)
    app.connect("autodoc-process-docstring", as_rst, priority=100)
    app.connect("autodoc-process-signature", without_factories)
    use_short_names()
