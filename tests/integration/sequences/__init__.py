"""Random lives of runs against a provider that refuses an unpaired history."""
