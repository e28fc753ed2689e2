"""Child processes and what they need on one machine: a data folder, a port, a store."""
