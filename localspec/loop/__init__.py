"""One round, the token iterator, stop rules, counters. Knows no concrete drafter and no llama.cpp."""
