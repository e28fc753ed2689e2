"""The bodies that cross the process border: what is accepted, and what is answered."""
