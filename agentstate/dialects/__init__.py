"""Floor 2: wire forms. One file and one row per dialect."""
