"""Floor 3: what happens to a call, one step after another."""
