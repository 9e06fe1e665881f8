"""The plugin proper: the classes that vLLM loads by name, each hook as small as it can be."""
