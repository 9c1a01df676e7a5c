"""Recompute by module and by layers in a scenario: what is read, and what is refused with the reason."""

import pytest

from planner.forecast import forecast_strategy
from planner.scenario import ScenarioError, parse_scenario

TEXT = """
model: {model}
cluster: {{node: hgx-h100, nodes: 8}}
training: {{tokens: 1e11, sequence_length: 4096, global_batch_sequences: 256}}
strategies:
  only: {{tp: 4, pp: 4, dp: 4, micro_batch_sequences: 1, {more}}}
"""


def scenario(more, model="llama3-70b"):
    return parse_scenario(TEXT.format(model=model, more=more))


def resolved(more, model="llama3-70b"):
    return forecast_strategy(scenario=scenario(more, model), name="only", engine="fast").document["strategy"]


def test_naming_modules_or_layers_says_which_policy():
    found = resolved("recompute_modules: mlp")
    assert (found["recompute"], found["recompute_modules"]) == ("selective", ["mlp"])
    found = resolved("recompute_layers: 5")
    assert (found["recompute"], found["recompute_layers"]) == ("full", 5)
    found = resolved("recompute: full")
    assert (found["recompute_modules"], found["recompute_layers"]) == ([], None)


@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        ("recompute: full, recompute_modules: [mlp]", "recompute_modules", "not to full"),
        ("recompute: selective, recompute_layers: 2", "recompute_layers", "not to selective"),
        ("recompute_modules: [mlp], recompute_layers: 2", "recompute_layers", "not to modules"),
        ("recompute_layers: 21", "recompute_layers", "at most 20"),
        ("recompute_modules: [moe_act]", "recompute_modules", "moe_act: the model has no experts"),
        ("recompute_modules: [mla_up_proj]", "recompute_modules", "no latent attention"),
        ("recompute_modules: [mpl]", "recompute_modules", "mlp"),
    ],
)
def test_what_cannot_be_recomputed_is_refused(more, key, reason):
    with pytest.raises(ScenarioError) as found:
        scenario(more)
    assert any(key in i.path and reason in str(i) for i in found.value.issues), found.value


def test_experts_without_a_dense_layer_have_no_mlp():
    with pytest.raises(ScenarioError, match="name moe or moe_act"):
        scenario("recompute_modules: [mlp]", model="mixtral-8x7b")
