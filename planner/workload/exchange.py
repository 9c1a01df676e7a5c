"""How data-parallel ranks exchange gradients and weights where it is not the plain way, and what that asks for.

Word of caution for every reader: all but the 16-bit exchange change the arithmetic of training. Seconds are forecast;
what happens to the loss is not, and `notes` says so.
"""

from dataclasses import dataclass

SCALE_BLOCK = 256  # elements that share one fp32 scale (ZeRO++, arXiv 2306.10209, quantises by block)
SCALE_BYTES = 4 / SCALE_BLOCK
# Bytes of one exchanged element.
ELEMENT_BYTES = {"fp16": 2.0, "int8": 1.0 + SCALE_BYTES, "int4": 0.5 + SCALE_BYTES, "onebit": 1 / 8 + SCALE_BYTES}
ERROR_FEEDBACK = {"onebit", "lowrank"}  # kinds that keep what they did not send and add it to the next gradient


@dataclass(frozen=True, slots=True)
class Exchange:
    """What ranks send each other.

    Attributes:
        kind: none, fp16, int8, int4, onebit or lowrank: form of the gradients on the wire.
        rank: columns of the two factors of a low-rank gradient.
        side: rows and columns of a weight matrix, for low-rank factors.
        warmup_frac: share of the steps that onebit exchanges uncompressed.
        weights: none or int8: form of the weights that ZeRO-3 gathers.
        secondary: a second copy of the weights in each node, so that the backward gathers stay inside.
        secondary_ranks: ranks that share the second copy.
        every_steps: optimizer steps between exchanges (local SGD).
        staleness_steps: steps that an exchange may lag behind.
    """

    kind: str = "none"
    rank: int = 4
    side: int = 4096
    warmup_frac: float = 0.2
    weights: str = "none"
    secondary: bool = False
    secondary_ranks: int = 8
    every_steps: int = 1
    staleness_steps: int = 0


PLAIN = Exchange()


def extra_bytes(*, exchange: Exchange, params: float, trained_frac: float) -> float:
    """Bytes a rank needs beyond plain training: error feedback, outer states, stale gradients, a second weight copy.

    Args:
        exchange: the exchange.
        params: parameters that the rank's tensor and pipeline shard holds.
        trained_frac: share of them that has gradients.
    """
    trained = params * trained_frac
    total = 4.0 * trained if exchange.kind in ERROR_FEEDBACK else 0.0
    if exchange.every_steps > 1:
        total += 8.0 * trained  # outer parameters and outer momentum, fp32 (DiLoCo, arXiv 2311.08105)
    total += 2.0 * trained * exchange.staleness_steps
    if exchange.secondary:
        total += 2.0 * params / exchange.secondary_ranks
    return total


def usual_zero_stages(*, exchange: Exchange, usual: tuple[int, ...]) -> tuple[int, ...]:
    """The ZeRO stages to try where the strategy leaves the stage open."""
    if exchange.weights != "none" or exchange.secondary:
        return (3,)
    # Local SGD keeps whole states on every rank, error feedback whole gradients, stale exchange whole weights.
    most = 0 if exchange.every_steps > 1 else 1 if exchange.kind in ERROR_FEEDBACK else 2
    if exchange.every_steps == 1 and exchange.kind not in ERROR_FEEDBACK and not exchange.staleness_steps:
        return usual
    return tuple(z for z in usual if z <= most) or (0,)


def notes(exchange: Exchange) -> tuple[str, ...]:
    """What each departure means for convergence: none of it is in the forecast."""
    out = []
    if exchange.kind == "fp16":
        out.append("gradients exchanged in 16 bits: needs loss scaling (fp16) or accepts 8 bits of mantissa (bf16)")
    if exchange.kind in {"int8", "int4"}:
        out.append(f"gradients exchanged in {exchange.kind}: validate the loss; ZeRO++ (arXiv 2306.10209) saw it kept")
    if exchange.kind == "onebit":
        out.append(
            f"1-bit gradients with error feedback (1-bit Adam, arXiv 2102.02888): {exchange.warmup_frac:.0%} of the "
            "steps run uncompressed first; works with Adam only and needs re-validation of the loss"
        )
    if exchange.kind == "lowrank":
        out.append(
            f"rank-{exchange.rank} gradients with error feedback (PowerSGD, arXiv 1905.13727): slower to converge on "
            "transformers at low ranks; needs re-validation of the loss"
        )
    if exchange.weights == "int8":
        out.append("weights gathered in int8 (ZeRO++, arXiv 2306.10209): small loss of precision in every pass")
    if exchange.every_steps > 1:
        out.append(
            f"local SGD, exchange every {exchange.every_steps} steps (arXiv 1805.09767, 2311.08105): 0-10 % more "
            "tokens for equal loss are reported; days here are for the tokens stated"
        )
    if exchange.staleness_steps:
        out.append(
            f"gradients up to {exchange.staleness_steps} steps old (stale-synchronous, Ho et al. 2013): needs a "
            "smaller learning rate and more steps; days here are for the tokens stated"
        )
    return tuple(f"convergence: {text}" for text in out)
