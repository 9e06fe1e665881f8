"""Draft engines behind one port: vLLM where it runs, transformers everywhere else."""
