"""Loading files into topics in bulk."""
