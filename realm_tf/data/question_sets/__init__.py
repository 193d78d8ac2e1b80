"""Public question sets, made questions files of this project."""
