import json
import math
from pathlib import Path

import pytest

from planner.forecast import forecast_strategy
from planner.profile.site import Site, SiteError, load_site
from planner.scenario import load_scenario
from planner.simulate.assemble import with_site
from planner.validate.command import UnreadableRowsError, validate_kind
from planner.validate.runs import _answer, fit_rows, packaged_rows, validate_row, validate_runs
from planner.validate.setup import setup_of_row
from planner.validate.site import SiteFits, fit_site, shares

ROOT = Path(__file__).parents[2]
ROWS = [r for r in packaged_rows() if "llm-foundry" in r["source"] and r["metric"] == "tokens_per_s_per_gpu"][:24]
STEPS = [_answer(setup_of_row(r), "fast") for r in ROWS]


def test_shares_add_up_and_a_site_of_ones_changes_nothing() -> None:
    for step in STEPS[:6]:
        assert shares(step).sum() == pytest.approx(1.0)
        same = with_site(answer=step, compute_factor=1.0, network_factor=1.0, host_factor=1.0)
        assert same.step_s == pytest.approx(step.step_s)
        slower = with_site(answer=step, compute_factor=1.2, network_factor=1.2, host_factor=1.2)
        assert slower.step_s == pytest.approx(1.2 * step.step_s)
        assert slower.tokens_per_s == pytest.approx(step.tokens_per_s / 1.2)


def test_a_planted_slow_clock_is_found_again() -> None:
    site = fit_site(name="planted", runs=[(s, float(shares(s)[0]) * math.log(1.15)) for s in STEPS])
    assert site.compute_factor == pytest.approx(1.15, rel=0.02)
    assert site.residual_sigma < 0.02


def test_leaving_a_configuration_out_takes_its_own_runs_away() -> None:
    fits = SiteFits()
    fits.add(source="s", gpu="g", config="a", answer=STEPS[0], log_ratio=0.3)
    assert fits.log_factor(source="s", gpu="g", config="a", answer=STEPS[0]) is None
    found = fits.log_factor(source="s", gpu="g", config="b", answer=STEPS[0])
    assert found is not None
    assert 0.1 < found[0] < 0.3
    assert fits.log_factor(source="t", gpu="g", config="b", answer=STEPS[0]) is None


def test_a_few_runs_of_a_site_halve_the_error_on_its_others() -> None:
    site, used = fit_rows(rows=ROWS[::2], name="foundry")
    assert used == len(ROWS[::2])
    before, after = [], []
    for row, step in list(zip(ROWS, STEPS, strict=True))[1::2]:
        answer = validate_row(index=0, row=row)
        fitted = with_site(answer=step, compute_factor=site.compute_factor, network_factor=site.network_factor,
                           host_factor=site.host_factor)  # fmt: skip
        before.append(abs(answer["zero_shot"]["error_pct"]))
        speed = answer["zero_shot"]["predicted"] * step.step_s / fitted.step_s
        after.append(abs(100 * (speed / answer["measured"] - 1)))
    assert sum(after) < 0.75 * sum(before)


def test_a_scenario_uses_its_site(tmp_path: Path) -> None:
    file = tmp_path / "site.json"
    constants = {"compute_factor": 1.3, "compute_sigma": 0.02, "network_factor": 1.0, "network_sigma": 0.3}
    rest = {"host_factor": 1.0, "host_sigma": 0.3, "residual_sigma": 0.04}
    file.write_text(Site(name="x", runs=3, **constants, **rest).model_dump_json())
    text = (ROOT / "scenarios" / "gpt2-124m-8xh100.yaml").read_text()
    plain = load_scenario(ROOT / "scenarios" / "gpt2-124m-8xh100.yaml")
    named = tmp_path / "s.yaml"
    named.write_text(text.replace("cluster: {", f"cluster: {{site: {file}, ", 1))
    name = next(iter(plain.strategies))
    a = forecast_strategy(scenario=plain, name=name, engine="fast")
    b = forecast_strategy(scenario=load_scenario(named), name=name, engine="fast")
    assert 1.15 < b.answer.step_s / a.answer.step_s <= 1.3
    band = b.document["step_s"]
    assert band["p90"] / band["p10"] < a.document["step_s"]["p90"] / a.document["step_s"]["p10"]


def test_bad_site_files_say_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    with pytest.raises(SiteError, match="cannot read"):
        load_site(file)
    file.write_text("{")
    with pytest.raises(SiteError, match="not JSON"):
        load_site(file)
    file.write_text(json.dumps({"name": "x"}))
    with pytest.raises(SiteError, match="runs"):
        load_site(file)
    with pytest.raises(ValueError, match="none of 1 rows"):
        fit_rows(rows=[ROWS[0] | {"gbs": ""}], name="x")


def test_a_site_file_fills_the_site_column_and_flags_what_it_saw(tmp_path: Path) -> None:
    site, _ = fit_rows(rows=ROWS[::2], name="foundry")
    document = validate_runs(rows=ROWS, site=site)
    seen = [a for a in document["rows"] if "site_fitted_to_this_run" in a["flags"]]
    assert {a["config"] for a in seen} == set(site.configs)
    assert 0 < len(seen) < len(ROWS)
    for a, row, step in zip(document["rows"], ROWS, STEPS, strict=True):
        fitted = with_site(answer=step, compute_factor=site.compute_factor, network_factor=site.network_factor,
                           host_factor=site.host_factor)  # fmt: skip
        assert a["site"]["predicted"] == pytest.approx(a["zero_shot"]["predicted"] * step.step_s / fitted.step_s)
        assert a["site"]["p10"] < a["site"]["predicted"] < a["site"]["p90"]
        assert row["metric"] == a["metric"]
    others = [a for a in document["rows"] if a not in seen]
    assert sum(abs(a["site"]["error_pct"]) for a in others) < sum(abs(a["zero_shot"]["error_pct"]) for a in others)


def test_a_site_says_nothing_of_memory_and_moves_time_the_other_way() -> None:
    site = Site(name="slow", runs=1, compute_factor=1.5, network_factor=1.5, host_factor=1.5, compute_sigma=0.0,
                network_sigma=0.0, host_sigma=0.0, residual_sigma=0.0)  # fmt: skip
    rows = [next(r for r in packaged_rows() if r["metric"] == m) for m in ("step_time_s", "mfu_pct", "memory_gb")]
    time, mfu, memory = validate_runs(rows=rows, site=site)["rows"]
    assert time["site"]["predicted"] == pytest.approx(1.5 * time["zero_shot"]["predicted"])
    assert mfu["site"]["predicted"] == pytest.approx(mfu["zero_shot"]["predicted"] / 1.5)
    assert memory["zero_shot"] is not None
    assert memory["site"] is None


def test_a_site_is_for_runs_alone(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRowsError, match="--site"):
        validate_kind(kind="kernels", path=None, engine="fast", group=None, site=tmp_path / "site.json")
    with pytest.raises(SiteError):
        validate_kind(kind="runs", path=None, engine="fast", group=None, site=tmp_path / "site.json")
