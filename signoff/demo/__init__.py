"""The guided run of `signoff demo`: real processes, a real receiver, and checks of what it saw."""
