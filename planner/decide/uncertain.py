"""What a forecast does not know for sure, and a cheap function from it to step, days and cost.

Every input is log-normal around the forecast's own value. The function takes one full forecast apart and puts it
together again for thousands of draws:

- step: products, attention, memory-bound work, optimizer and the bubble that waits for them go with one over the
  kernel rate, exposed communication with one over the fabric's bandwidth, launch gaps with the host; all of it with
  `step_model`, which holds what the named parts leave of the forecast's band. Overlap is not worked out anew: what was
  hidden stays hidden, which understates a much slower fabric.
- days: the run clock in closed form on the scaled plan; the checkpoint interval stays as planned.
- cost: every bucket of the bill is proportional to the hours held, to its own price, or to neither (engineering).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import catalog
from planner.cost.collective import collective_s
from planner.cost.kernels import matmul_s
from planner.cost.types import Group
from planner.forecast import Forecast, machine_for, step_sigma
from planner.scenario import Scenario, Strategy
from planner.simulate.run.closed_form import expected_run
from planner.simulate.run.plan import RunPlan
from planner.simulate.run.setup import run_plan

Floats = NDArray[np.float64]
METRICS = {"days": "day", "cost": "USD", "step": "s"}
DAY_S = 86_400.0
COMPUTE = ("compute_matmul", "compute_attention", "compute_memory_bound", "optimizer", "bubble")
PROBE_BYTES = 256e6
# Spreads (standard deviation of the logarithm) that no table of the catalogue shows.
HOST_SIGMA = 0.3  # launch gaps between hosts of one kind. Assumed
RECOVERY_SIGMA = 0.5  # P10 to P90: half to twice. Assumed: 10 to 30 minutes of NCCL time-outs alone span this
STORAGE_SIGMA = 0.54  # 50 to 200 GB/s, the production range of checkpoint writes, as P10 to P90
PUE_SIGMA = 0.1  # 1.1 (new) to 1.4 (average) around the default as P10 to P90
ELECTRICITY_SIGMA = 0.15  # between years and contracts of one country. Assumed
POWER_SIGMA = 0.11  # calibrated power models of an H100 node err by this
TOKENS_SIGMA = 0.1  # plans change while they run. Assumed
ENGINEERING_SIGMA = 0.4  # effort of software work. Assumed


@dataclass(frozen=True, slots=True)
class Input:
    """An uncertain input: log-normal factor on the forecast's own value.

    Attributes:
        value: what the forecast takes, in `unit`.
        sigma: one standard deviation of its logarithm.
        label: where the spread comes from.
        measure: how to know it better before buying; empty for what cannot be measured.
    """

    key: str
    value: float
    unit: str
    sigma: float
    label: str
    measure: str

    def at(self, z: float) -> float:
        """The value `z` standard deviations above the forecast's."""
        return self.value * math.exp(z * self.sigma)


@dataclass(frozen=True, slots=True)
class Response:
    """One strategy's metrics as a function of its inputs."""

    name: str
    inputs: tuple[Input, ...]
    parts: Mapping[str, float]
    plan: RunPlan
    days: float
    cost_usd: Mapping[str, float]
    engineering_usd: float
    owned: bool
    asynchronous_stall_s: float | None

    def __call__(self, z: Mapping[str, Floats], metric: str) -> Floats:
        """The metric for standard-normal draws of the inputs; inputs left out stay at the forecast's value.

        Args:
            z: arrays of one shape (n,) by input key.
            metric: one of METRICS.

        Raises:
            ValueError: another metric.
        """
        if metric not in METRICS:
            raise ValueError(f"unknown metric {metric!r}")
        sigma = {i.key: i.sigma for i in self.inputs}
        n = len(next(iter(z.values()))) if z else 1
        one = np.ones(n)
        f = {k: np.exp(s * z[k]) if k in z else one for k, s in sigma.items()}
        step = self._step(f)
        if metric == "step":
            return step
        days = self._days(f, step)
        return days if metric == "days" else self._cost(f, days)

    def _step(self, f: Mapping[str, Floats]) -> Floats:
        total: Floats = np.zeros(len(f["step_model"]))
        for part, seconds in self.parts.items():
            if part in COMPUTE:
                total = total + seconds / f["kernel_rate"]
            elif part.startswith("exposed_"):
                total = total + seconds / f["fabric_bandwidth"]
            elif part == "launch_gap":
                total = total + seconds * f["host_launch"]
            else:
                total = total + seconds
        return total * f["step_model"]

    def _days(self, f: Mapping[str, Floats], step: Floats) -> Floats:
        base = sum(self.parts.values())
        work = self.plan.work_s * step / base * f["tokens"]
        rates, jobs = f["failure_rate"], f["job_failure_rate"]
        recovery, storage = f["recovery_time"], f["storage_rate"]
        out = np.empty(len(work))
        for i in range(len(work)):
            out[i] = expected_run(plan=self._drawn(work[i], rates[i], jobs[i], recovery[i], storage[i])).elapsed_s
        return out / DAY_S

    def _drawn(self, work_s: float, rate: float, job: float, recovery: float, storage: float) -> RunPlan:
        p = self.plan
        durable = p.durable_s / storage
        stall = durable if self.asynchronous_stall_s is None else min(durable, self.asynchronous_stall_s)
        return replace(
            p,
            work_s=float(work_s),
            node_failures_per_s=p.node_failures_per_s * rate,
            job_failures_per_s=p.job_failures_per_s * job,
            detection_s=p.detection_s * recovery,
            replacement_s=p.replacement_s * recovery,
            restart_s=p.restart_s * recovery,
            communicator_s=p.communicator_s * recovery,
            load_s=p.load_s * recovery,
            compile_s=p.compile_s * recovery,
            manual_s=p.manual_s * recovery,
            stall_s=stall,
            durable_s=durable,
        )

    def _cost(self, f: Mapping[str, Floats], days: Floats) -> Floats:
        hours = days / self.days
        usd = self.cost_usd
        machines = usd["compute"] + usd["support"]
        storage = usd["storage"] + usd["network"]
        priced, plain = (machines + storage, 0.0) if self.owned else (machines, storage)
        power = usd["power"] * f["pue"] * f["electricity_price"] * f["power_draw"]
        operations = usd["people"] - self.engineering_usd
        held = priced * f["price"] + plain + power + usd["facility"] + operations
        return np.asarray(held * hours + self.engineering_usd * f["engineering"])


def response_of(*, scenario: Scenario, forecast: Forecast) -> Response:
    """The cheap function of a forecast strategy.

    Raises:
        TypeError: the strategy is not resolved.
    """
    strategy = scenario.strategies[forecast.name]
    if not isinstance(strategy, Strategy):
        raise TypeError(f"strategy {forecast.name} is not resolved")
    document = forecast.document
    plan = run_plan(
        scenario=scenario,
        strategy=strategy,
        layout=forecast.resolved.layout,
        step_s=forecast.answer.effective_s,
        optimisations=forecast.answer.applied,
    )
    return Response(
        name=forecast.name,
        inputs=_inputs(scenario=scenario, forecast=forecast, plan=plan),
        parts=dict(forecast.answer.breakdown_s),
        plan=plan,
        days=expected_run(plan=plan).elapsed_s / DAY_S,
        cost_usd=dict(document["cost_usd"]),
        engineering_usd=document["people_usd"]["engineering"],
        owned=scenario.pricing.tenure == "own",
        asynchronous_stall_s=scenario.run.snapshot_s if plan.stall_s < plan.durable_s else None,
    )


def _inputs(*, scenario: Scenario, forecast: Forecast, plan: RunPlan) -> tuple[Input, ...]:
    """Every uncertain input with its value and spread; a spread of zero where the scenario knows it."""
    document, run, pricing = forecast.document, scenario.run, scenario.pricing
    kernel, wire = _hardware(scenario=scenario, forecast=forecast)
    parts = dict(forecast.answer.breakdown_s)
    step = sum(parts.values())
    share_compute = sum(parts[k] for k in COMPUTE) / step
    share_wire = sum(v for k, v in parts.items() if k.startswith("exposed_")) / step
    known = (
        (share_compute * kernel.sigma) ** 2
        + (share_wire * wire.sigma) ** 2
        + (parts["launch_gap"] / step * HOST_SIGMA) ** 2
    )
    rest = math.sqrt(max(0.0, step_sigma(scenario=scenario, answer=forecast.answer) ** 2 - known))
    rate = plan.node_failures_per_s * DAY_S * 1000
    price = document["price"]
    facility, electricity = document["facility"], document["electricity"]
    engineering = document["people_usd"]["engineering"]
    quote = "ask for a written quote with a date"
    given = pricing.usd_per_kwh is not None
    return (
        kernel,
        wire,
        Input(
            "host_launch",
            parts["launch_gap"],
            "s",
            HOST_SIGMA,
            "assumed",
            "planner calibrate step on one node of the host type",
        ),
        Input("step_model", step, "s", rest, "fitted", "run 100 steps of the plan on the fewest nodes where it fits"),
        Input(
            "failure_rate",
            rate,
            "per 1000 node-days",
            plan.node_sigma,
            "published",
            "ask the provider for interruptions over node-days of a like cluster, and name the log in the contract",
        ),
        Input(
            "job_failure_rate",
            plan.job_failures_per_s * DAY_S,
            "per day",
            plan.job_sigma,
            "published",
            "count your own",
        ),
        Input(
            "recovery_time",
            plan.recovery_s,
            "s",
            RECOVERY_SIGMA,
            "assumed",
            "rehearse: kill a process on one node ten times and time each return to stepping",
        ),
        Input(
            "storage_rate",
            run.storage_bytes_per_s / 1e9,
            "GB/s",
            STORAGE_SIGMA,
            "assumed",
            "write one sharded checkpoint from all nodes",
        ),
        Input("price", price["usd_per_gpu_hour"], "USD per GPU-hour", price["sigma"], price["label"], quote),
        Input("pue", facility["pue"], "1", 0.0 if pricing.pue else PUE_SIGMA, "published", "ask for a year of meters"),
        Input(
            "electricity_price",
            electricity["usd_per_kwh"],
            "USD per kWh",
            0.0 if given else ELECTRICITY_SIGMA,
            "assumed",
            "read the contract of the hall",
        ),
        Input(
            "power_draw",
            facility["mean_it_kw"],
            "kW",
            0.0 if pricing.watts_per_gpu else POWER_SIGMA,
            "published",
            "read a node's meter during a long step test",
        ),
        Input("tokens", scenario.training.tokens, "token", TOKENS_SIGMA, "assumed", ""),
        Input(
            "engineering",
            engineering,
            "USD",
            ENGINEERING_SIGMA if engineering else 0.0,
            "assumed",
            "do the first two weeks on a proxy and estimate again",
        ),
    )


def _hardware(*, scenario: Scenario, forecast: Forecast) -> tuple[Input, Input]:
    """Kernel rate and fabric bandwidth at probe shapes, with the spread of their tables."""
    lay = forecast.resolved.layout
    machine = machine_for(scenario=scenario, resolved=forecast.resolved, gpus=scenario.gpus)
    gpu = catalog.gpu(machine.gpu)
    side = 8192
    product = matmul_s(gpu=gpu.name, dtype=lay.precision, m=side, n=side, k=side, state="hot")
    kernel = Input(
        "kernel_rate",
        2.0 * side**3 / product.seconds / 1e12,
        "TFLOP/s",
        product.spread_frac,
        product.label,
        "calibrate run on one GPU of the kind (minutes)",
    )
    size = scenario.gpus
    inside = min(size, machine.network.scaleup_domain_gpus)
    if size == 1:
        return kernel, Input("fabric_bandwidth", 0.0, "GB/s", 0.0, "assumed", "")
    found = collective_s(
        op="all_reduce", payload_bytes=PROBE_BYTES, group=Group(size=size, per_domain=inside), network=machine.network
    )
    rate = 2 * (size - 1) / size * PROBE_BYTES / found.seconds / 1e9
    how = "calibrate collectives on two or more nodes of the fabric"
    return kernel, Input("fabric_bandwidth", rate, "GB/s", found.spread_frac, found.label, how)


def draws(*, inputs: Sequence[Input], z: NDArray[Any]) -> dict[str, Floats]:
    """Rows of standard-normal draws by input key. z has shape (inputs, n)."""
    return {i.key: np.asarray(row, dtype=np.float64) for i, row in zip(inputs, z, strict=True)}
