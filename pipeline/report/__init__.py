"""What went through the topics of a cluster, and who has read how much of it: see DESIGN.md."""
