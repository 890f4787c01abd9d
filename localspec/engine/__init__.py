"""The only folder that imports llama_cpp; `base` holds the protocols that everyone else sees."""
