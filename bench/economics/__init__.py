"""What drafting by other people's GPUs costs and earns: a seeded simulation of a day, its report and its plots."""
