"""What must hold in a cluster's databases, checked: see DESIGN.md. Spark is one executor of the plan; a plain loop is another."""
