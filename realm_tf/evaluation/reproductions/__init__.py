"""What is published: numbers, how they are measured, the tables of docs."""
