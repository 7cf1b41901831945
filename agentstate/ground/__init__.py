"""Floor 0: values, errors, settings, time. Imports nothing of ours but itself."""
