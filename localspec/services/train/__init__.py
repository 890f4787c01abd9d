"""Training a draft head for a GGUF verifier: data from the verifier itself, the head, its evaluation."""
