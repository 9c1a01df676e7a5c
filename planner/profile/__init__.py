"""The calibration profile: schema, and surfaces derived on reading."""
