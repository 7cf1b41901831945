"""Floor 5: HTTP in, HTTP out."""
