"""Money: rent, ownership, networks, power, carbon, people and their break-evens."""
