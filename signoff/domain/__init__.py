"""The pure ground floor: values, state tables and rules, without I/O, clock or randomness."""
