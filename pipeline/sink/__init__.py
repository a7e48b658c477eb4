"""Writing DataFrames into topics."""
