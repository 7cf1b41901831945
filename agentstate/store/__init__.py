"""Where the record lives. One row per backend; the opener imports its driver inside."""
