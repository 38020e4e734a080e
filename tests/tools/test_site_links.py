"""The link check of the built site finds what leads nowhere, and nothing else."""

import pytest

from tools.site_links import broken, main

PAGE = '<html><body><h1 id="top">x</h1><a href="{}">y</a></body></html>'


@pytest.fixture
def site(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text(PAGE.format("../page.html#top"))
    (tmp_path / "figure one.png").write_bytes(b"x")
    return tmp_path


@pytest.mark.parametrize(
    "target",
    [
        "#top", "#", "folder/", "folder/index.html#top", "figure%20one.png", "https://example.org/x", "mailto:a@b.c",
        "page.html?x=1#top", "data:image/png;base64,AAAA",
    ],
)  # fmt: skip
def test_links_that_lead_somewhere(site, target, capsys):
    (site / "page.html").write_text(PAGE.format(target))
    assert broken(site) == []
    assert main([str(site)]) == 0
    assert capsys.readouterr().out == "0 links lead nowhere\n"


@pytest.mark.parametrize(
    "target, why",
    [
        ("#nowhere", "names no id of page.html"),
        ("folder/index.html#nowhere", "names no id of folder/index.html"),
        ("missing.html", "is no file of the site"),
        ("missing.png", "is no file of the site"),
        ("../elsewhere.html", "leaves the site"),
    ],
)
def test_links_that_lead_nowhere(site, target, why, capsys):
    (site / "page.html").write_text(PAGE.format(target))
    # A page read before under the same path was kept: each test has a folder of its own.
    assert broken(site) == [f"page.html: {target!r} {why}"]
    assert main([str(site)]) == 1
    assert why in capsys.readouterr().out


def test_a_folder_without_pages_is_refused(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "holds no HTML page" in capsys.readouterr().err
