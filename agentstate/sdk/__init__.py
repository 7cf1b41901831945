"""The porch: what runs beside an agent. It knows the proxy by its HTTP interface alone.

Nothing here imports the server, and nothing of another package before somebody calls for it: the
clients are subclasses of the real ones, so each of their modules imports its package at the top
and is itself loaded on use (`agentstate.__getattr__`). The counterpart is `steps/identify.py`,
which reads what is sent here.
"""
