"""What is published, measured anew and compared."""
