"""One drafting technique per file; `registry` names them all."""
