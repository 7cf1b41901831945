"""Floor 3: what happens to a call, one step after another.

identify (who, which step, which fingerprint) → replay (is it on record?) → flight (is it on its
way?) → forward (ask a target) → checkpoint (write before release). `pipeline` owns the order.
"""
