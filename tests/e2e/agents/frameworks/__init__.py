"""Agents as users of each framework write them; `life.py` says what they have in common."""
