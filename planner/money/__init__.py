"""Money: rent, and what a price's date says about it."""
