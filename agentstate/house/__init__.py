"""Floor 4: what runs beside calls: the mock provider, demos, bench."""
