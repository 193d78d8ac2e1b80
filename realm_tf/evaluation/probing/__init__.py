"""What each block does to one prediction."""
