"""AgentState: checkpoint, replay and gate for agents, as a proxy in one file.

Importing this package imports nothing third-party.
"""

__version__ = "0.1.0"
