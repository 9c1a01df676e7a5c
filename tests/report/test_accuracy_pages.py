"""The accuracy tables of README and docs: renewed between their markers, nothing else touched."""

import pytest

from planner.report.accuracy import SHORT, WHOLE, update_pages


def scored(error_pct):
    return {"mape_pct": error_pct, "median_ape_pct": 4.0, "bias_pct": -1.0, "worst_pct": 9.0, "coverage_frac": 0.8}


def group(name, trust, n, error_pct):
    return {"group": name, "trust": trust, "n_configs": n, "zero_shot": scored(error_pct), "baseline": None}


DOCUMENT = {
    "groups": [
        group("many | H100 | 1-node", "A", 7, 6.0),
        group("few | H100 | 1-node", "A", 2, 8.0),
        group("hearsay | H100 | 1-node", "C", 9, 31.0),
        {"group": "none | H100 | 1-node", "trust": "A", "n_configs": 9, "zero_shot": None, "baseline": None},
    ],
    "summary": {
        "n_rows": 2000,
        "n_forecast": 1900,
        "zero_shot": {"mean_group_mape_pct": 15.0, "median_group_mape_pct": 8.0, "coverage_frac": 0.8},
        "baseline": {"median_group_mape_pct": 21.0},
        "ranking": {"spearman": 0.7, "regret_frac": 0.05},
    },
}


@pytest.fixture
def pages(tmp_path):
    out = []
    for name, marks in (("README.md", SHORT), ("accuracy.md", WHOLE)):
        path = tmp_path / name
        path.write_text(f"before\n{marks[0]}\nstale\n{marks[1]}\nafter\n", "utf-8")
        out.append(path)
    return out


def test_readme_has_the_groups_that_say_something_and_the_page_all(pages):
    update_pages(paths=pages, document=DOCUMENT)
    short, whole = (p.read_text("utf-8") for p in pages)
    for text in (short, whole):
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n"), text
        assert "stale" not in text
        assert "1,900 of 2,000" in text
        assert "| many, H100, 1-node | 7 | 6.0 |" in text
        assert "mean 6.0 %, median 6.0 %" in text
        assert "none, H100" not in text
    assert "few" not in short
    assert "hearsay" not in short
    assert "| few, H100, 1-node | 2 | 8.0 |" in whole
    assert "*hearsay, H100, 1-node* (31.0 %): not explained" in whole


def test_a_page_without_markers_changes_none(pages, tmp_path):
    bare = tmp_path / "bare.md"
    bare.write_text("nothing here", "utf-8")
    with pytest.raises(ValueError, match=r"bare\.md has no"):
        update_pages(paths=[*pages, bare], document=DOCUMENT)
    assert all("stale" in p.read_text("utf-8") for p in pages)
