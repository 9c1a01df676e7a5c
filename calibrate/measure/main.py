"""`python3 -m calibrate.measure.main --out p.json --mode full --seconds 400`: a calibration that needs torch only."""

import argparse
from pathlib import Path

from calibrate.measure.plan import GROUPS
from calibrate.measure.session import run


def main() -> None:
    """Run what fits in the time and keep it."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--mode", choices=["quick", "full"], default="full")
    p.add_argument("--seconds", type=float, default=600.0)
    p.add_argument("--only", choices=GROUPS, nargs="*", default=())
    p.add_argument("--resume", action="store_true")
    a = p.parse_args()
    document = run(out=a.out, mode=a.mode, only=tuple(a.only), resume=a.resume, limit_s=a.seconds)
    print(
        f"{len(document['samples'])} samples in {document['run']['seconds']:.0f} s",
        *document["run"]["warnings"],
        sep="\n",
    )


if __name__ == "__main__":
    main()
