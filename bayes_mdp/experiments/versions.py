"""`show_versions`: what a report of a problem should say about the machine."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import jax

import bayes_mdp

REQUIRED = ("numpyro", "jax", "jaxlib", "numpy", "scipy", "cvxpy", "arviz", "xarray", "equinox", "gymnasium")
OPTIONAL = ("numba", "optax", "scikit-learn", "distributed", "icu-sepsis", "ale-py")


def show_versions() -> None:
    """Print versions of Python, of this package and of those it uses, the devices, and the width of floats.

    Paste it into a report of a problem. Nothing is compiled; JAX's devices are started if they were not.

    Example:
        >>> bm.show_versions()
        bayes_mdp     ...
    """
    lines = {
        "bayes_mdp": bayes_mdp.__version__,
        "python": f"{platform.python_version()} ({sys.platform}, {platform.machine()})",
        **{name: _version(name) for name in (*REQUIRED, *OPTIONAL)},
        "devices": ", ".join(str(device) for device in jax.devices()),
        "cores": str(os.cpu_count()),
        "float64": "on"
        if jax.config.read("jax_enable_x64")
        else "off (JAX's default; posteriors on the host are float64)",
    }
    width = max(map(len, lines))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in lines.items()))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
