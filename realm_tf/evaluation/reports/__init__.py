"""Reports of evaluations, alone and side by side."""
