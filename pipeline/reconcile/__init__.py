"""Whether what producers were told, what is stored, what was consumed and what was exported are the same: see DESIGN.md."""
