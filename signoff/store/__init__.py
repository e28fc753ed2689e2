"""Everything that is said to Redis: keys, atomic scripts and typed access to what they keep."""
