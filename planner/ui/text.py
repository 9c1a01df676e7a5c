"""Every sentence of the pages, in English and Chinese."""

import re
from collections.abc import Callable
from typing import Any

from planner.report.units import percent
from planner.ui.units import Shown
from planner.ui.words import WORDS

LANGUAGES = ("en", "zh")
DEFAULT = "en"

TEXT: dict[str, dict[str, str]] = {
    "title": {"en": "Train this model on this cluster?", "zh": "这个集群适合训练这个模型吗？"},
    "language": {"en": "Language / 语言", "zh": "Language / 语言"},
    "preset": {"en": "Scenario", "zh": "场景"},
    "no_presets": {"en": "No scenario files are shipped with this installation.", "zh": "此安装未附带任何场景文件。"},
    "bad_preset": {"en": "The scenario file is not valid: {reason}", "zh": "场景文件无效：{reason}"},
    "cluster": {"en": "Cluster", "zh": "集群"},
    "nodes": {"en": "Nodes", "zh": "节点数"},
    "batch": {"en": "Global batch (sequences)", "zh": "全局批大小（序列数）"},
    "edit": {"en": "Layout of “{name}”", "zh": "“{name}”的并行方案"},
    "tp": {"en": "Tensor parallel (tp)", "zh": "张量并行 (tp)"},
    "pp": {"en": "Pipeline stages (pp)", "zh": "流水线级数 (pp)"},
    "micro": {"en": "Micro-batch (sequences)", "zh": "微批大小（序列数）"},
    "recompute": {"en": "Activation recompute", "zh": "激活重计算"},
    "auto_help": {
        "en": "auto: what memory allows (largest micro-batch, least recompute).",
        "zh": "auto：由显存决定（最大的微批、最少的重计算）。",
    },
    "vpp_changed": {
        "en": "Model chunks per stage (vpp) set to {vpp} so that they divide {layers} layers.",
        "zh": "每级模型块数 (vpp) 改为 {vpp}，以整除 {layers} 层。",
    },
    "dp_freed": {
        "en": "Data-parallel degree follows the number of GPUs.",
        "zh": "数据并行度随 GPU 数量变化。",
    },
    "subtitle": {
        "en": "{model} · {gpus} GPUs ({nodes} × {node}) · {tokens} tokens · sequence {sequence} · global batch {batch}",
        "zh": "{model} · {gpus} 个 GPU（{nodes} × {node}）· {tokens} 词元 · 序列长度 {sequence} · 全局批大小 {batch}",
    },
    "verdict_gap": {
        "en": "**{best}** is the cheapest: {saved} less than {other}, and {gap} {side}.",
        "zh": "**{best}** 成本最低：比 {other} 少 {saved}，{side} {gap} 完成。",
    },
    "earlier": {"en": "earlier", "zh": "提前"},
    "later": {"en": "later", "zh": "推迟"},
    "verdict_only": {
        "en": "**{best}** finishes in {days} for {cost}; no other strategy can run here.",
        "zh": "**{best}** 需 {days}，花费 {cost}；其他方案在此无法运行。",
    },
    "verdict_also": {
        "en": "{best} also costs {saved} less than {other}, and ends {gap} {side}.",
        "zh": "{best} 也比 {other} 少花 {saved}，{side} {gap} 完成。",
    },
    "verdict_none": {"en": "**No strategy fits** on this cluster.", "zh": "此集群上**没有可行方案**。"},
    "fastest": {"en": "{name} is the faster one.", "zh": "{name} 更快。"},
    "overlap": {
        "en": "The P10–P90 bands of the step overlap: likely, not sure.",
        "zh": "单步时间的 P10–P90 区间重叠：很可能，但不确定。",
    },
    "flips": {"en": "What would change the answer", "zh": "什么会改变结论"},
    "flip_tokens": {
        "en": "With tokens {side} {value} of the plan {other} is cheaper.",
        "zh": "若训练词元{side}计划的 {value}，{other} 更便宜。",
    },
    "flip_price": {
        "en": "At a GPU-hour {side} {value} {other} is cheaper.",
        "zh": "若每 GPU 小时价格{side} {value}，{other} 更便宜。",
    },
    "flip_labour_below": {
        "en": "If the labour of {other} costs less than {value}, it is cheaper.",
        "zh": "若 {other} 的人力成本低于 {value}，它更便宜。",
    },
    "flip_runs": {
        "en": "With {side} {value} runs in the programme {other} is cheaper.",
        "zh": "若计划内运行次数{side} {value}，{other} 更便宜。",
    },
    "flip_labour": {
        "en": "If the labour of {best} costs more than {value}, {other} is cheaper.",
        "zh": "若 {best} 的人力成本超过 {value}，{other} 更便宜。",
    },
    "flip_step": {
        "en": "If the step of {best} takes {value} times its forecast, {other} is as fast.",
        "zh": "若 {best} 的单步时间为预测的 {value} 倍，{other} 与之同速。",
    },
    "days": {"en": "Time to last token", "zh": "训练时长"},
    "cost": {"en": "Total cost", "zh": "总成本"},
    "mfu": {"en": "MFU", "zh": "MFU"},
    "fits": {"en": "Fits in memory", "zh": "显存可容纳"},
    "yes": {"en": "yes", "zh": "是"},
    "no": {"en": "no", "zh": "否"},
    "range": {
        "en": "P10–P90: {days_low} – {days_high}, {cost_low} – {cost_high}. Step {step}.",
        "zh": "P10–P90：{days_low} – {days_high}，{cost_low} – {cost_high}。单步 {step}。",
    },
    "layout": {
        "en": "{degrees} · ZeRO-{zero} · micro-batch {micro} × {count} · recompute {recompute} · {software}",
        "zh": "{degrees} · ZeRO-{zero} · 微批 {micro} × {count} · 重计算 {recompute} · {software}",
    },
    "over_memory": {
        "en": "**{name}** does not fit: {over} over the {capacity} of a GPU, on the fullest rank.",
        "zh": "**{name}** 放不下：最满的 GPU 超出其 {capacity} 容量 {over}。",
    },
    "cannot_place": {"en": "**{name}** cannot be placed: {reason}", "zh": "**{name}** 无法布置：{reason}"},
    "cannot_forecast": {"en": "This cannot be forecast: {reason}", "zh": "无法预测：{reason}"},
    "breakdown": {"en": "Where a step's time goes", "zh": "单步时间的去向"},
    "memory": {"en": "Memory of the fullest GPU", "zh": "最满 GPU 的显存"},
    "scaling": {"en": "Weak scaling", "zh": "弱扩展"},
    "scaling_note": {
        "en": "The batch grows with the GPUs. Missing points do not fit or cannot be placed.",
        "zh": "批大小随 GPU 数增长。缺失的点表示放不下或无法布置。",
    },
    "no_scaling": {"en": "No other cluster size fits.", "zh": "没有其他可行的集群规模。"},
    "axis_step": {"en": "seconds per step", "zh": "每步秒数"},
    "axis_memory": {"en": "{unit} per GPU", "zh": "每 GPU 显存 ({unit})"},
    "axis_gpus": {"en": "GPUs", "zh": "GPU 数"},
    "axis_rate": {"en": "tokens/s/GPU", "zh": "词元/秒/GPU"},
    "capacity": {"en": "capacity {gb}", "zh": "容量 {gb}"},
    "share": {"en": "share", "zh": "占比"},
    "part": {"en": "part", "zh": "部分"},
    "strategy": {"en": "strategy", "zh": "方案"},
    "explain": {"en": "Explain: where every figure comes from", "zh": "解释：每个数字的来源"},
    "explain_note": {
        "en": "Labels from best to worst: measured, interpolated, published, fitted, transferred, datasheet, assumed.",
        "zh": "标签由好到差：measured（实测）、interpolated（插值）、published（公开）、fitted（拟合）、"
        "transferred（迁移）、datasheet（规格书）、assumed（假设）。公式与来源保留英文原文。",
    },
    "col_id": {"en": "id", "zh": "标识"},
    "col_value": {"en": "value", "zh": "数值"},
    "col_unit": {"en": "unit", "zh": "单位"},
    "col_formula": {"en": "formula", "zh": "公式"},
    "col_inputs": {"en": "inputs", "zh": "输入"},
    "col_label": {"en": "label", "zh": "标签"},
    "col_source": {"en": "source", "zh": "来源"},
    "warnings": {"en": "Warnings", "zh": "警告"},
    "rests_on": {
        "en": "{name}: kernel and link time rests on {shares}.",
        "zh": "{name}：算子与链路时间依据 {shares}。",
    },
    "download_yaml": {"en": "Scenario (YAML)", "zh": "场景 (YAML)"},
    "download_json": {"en": "Answer (JSON)", "zh": "结果 (JSON)"},
    "working": {"en": "Forecasting…", "zh": "正在预测…"},
    "time.matmul": {"en": "matrix products", "zh": "矩阵乘"},
    "time.attention": {"en": "attention", "zh": "注意力"},
    "time.memory_bound": {"en": "memory-bound", "zh": "访存受限算子"},
    "time.tp": {"en": "tensor wait", "zh": "张量并行等待"},
    "time.pp": {"en": "pipeline transfer", "zh": "流水线传输"},
    "time.dp": {"en": "data-parallel wait", "zh": "数据并行等待"},
    "time.cp_ep": {"en": "context/expert wait", "zh": "上下文/专家等待"},
    "time.bubble": {"en": "pipeline bubble", "zh": "流水线气泡"},
    "time.rest": {"en": "host, optimizer, other", "zh": "主机、优化器、其他"},
    "memory.weights": {"en": "weights", "zh": "权重"},
    "memory.gradients": {"en": "gradients", "zh": "梯度"},
    "memory.optimizer": {"en": "optimizer states", "zh": "优化器状态"},
    "memory.activations": {"en": "activations", "zh": "激活"},
    "memory.buffers": {"en": "logits, buffers", "zh": "logits 与缓冲"},
    "memory.reserved": {"en": "context, reserve", "zh": "上下文与预留"},
}
TEXT |= {key: {"en": english, "zh": chinese} for key, (english, chinese) in WORDS.items()}

FLIPS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"tokens trained \(share of the plan\) (?P<side>below|above) which (?P<other>.+) is cheaper"),
     "flip_tokens", "share"),
    (re.compile(r"price of a GPU-hour \(USD\) (?P<side>below|above) which (?P<other>.+) is cheaper"),
     "flip_price", "price"),
    (re.compile(r"engineering of (?P<best>.+) \(USD\) above which (?P<other>.+) is cheaper"), "flip_labour", "money"),
    (re.compile(r"engineering of (?P<other>.+) \(USD\) below which it is cheaper"), "flip_labour_below", "money"),
    (re.compile(r"runs in the programme (?P<side>below|above) which (?P<other>.+) is cheaper"),
     "flip_runs", "plain"),
    (re.compile(r"step time of (?P<best>.+) \(factor on forecast\) at which (?P<other>.+) is as fast"),
     "flip_step", "plain"),
)  # fmt: skip
SIDES = {"below": {"en": "below", "zh": "低于"}, "above": {"en": "above", "zh": "高于"}}


def t(key: str, lang: str, **values: Any) -> str:
    """The text of a key in a language, with its placeholders filled.

    Raises:
        KeyError: no such key or language.
    """
    return TEXT[key][lang].format(**values)


def flip_text(*, flip: dict[str, Any], lang: str, shown: Shown = Shown()) -> str:
    """One entry of `flips_at` in words; an entry of unknown wording is quoted as it is."""
    shows: dict[str, Callable[[float], str]] = {
        "price": shown.unit_price,
        "money": shown.money,
        "share": percent,
        "plain": lambda x: f"{x:.2f}",
    }
    for pattern, key, kind in FLIPS:
        found = pattern.fullmatch(flip["input"])
        if found:
            words = found.groupdict()
            if "side" in words:
                words["side"] = SIDES[words["side"]][lang]
            return t(key, lang, value=shows[kind](flip["value"]), **words)
    return f"{flip['input']}: {flip['value']:.3g}"


def plain(text: str) -> str:
    """Text for Markdown in which a dollar sign is a dollar sign, not mathematics."""
    return text.replace("$", "\\$")
