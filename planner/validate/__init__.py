"""Predicted against measured: one file a kind of row, with the constant-MFU baseline beside our error."""
