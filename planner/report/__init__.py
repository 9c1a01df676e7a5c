"""Words and pictures made from results only."""
