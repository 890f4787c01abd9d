"""Conversations: turns within the context, their template and their file."""
