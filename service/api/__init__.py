"""The handlers, by resource, and the table of their routes."""
