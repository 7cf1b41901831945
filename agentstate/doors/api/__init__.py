"""The management API. One file per topic, one row per endpoint."""
