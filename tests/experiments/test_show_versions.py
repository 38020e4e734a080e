"""What a report of a problem says of the machine."""

import importlib
import importlib.metadata

import jax

import bayes_mdp as bm


def test_versions_are_those_that_are_installed(capsys):
    bm.experiments.show_versions()
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["bayes_mdp"] == bm.__version__
    assert lines["jax"] == importlib.metadata.version("jax")
    assert str(jax.devices()[0]) in lines["devices"]
    assert lines["float64"].startswith("on" if jax.config.read("jax_enable_x64") else "off")


def test_what_is_missing_is_said(monkeypatch, capsys):
    def version(name):
        if name == "numba":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1"

    # The package has the function under the name of the module.
    monkeypatch.setattr(importlib.import_module("bayes_mdp.experiments.describe"), "version", version)
    bm.experiments.show_versions()
    assert any(line.split() == ["numba", "not", "installed"] for line in capsys.readouterr().out.splitlines())
