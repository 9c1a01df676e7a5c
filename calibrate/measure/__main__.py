"""`python -m calibrate.measure --out profile.json`: a calibration that needs torch only."""

from calibrate.measure.main import main

main()
