"""What a server of twelve documents is made of, for `conftest.site`."""

ALL, PART = "0123456789abcdef-all", "0123456789abcdef-part"
WORDS = ["Nile", "Rome", "Ada", "fire", "river", "Egypt"]
