"""What information is worth: how much better one would do with more data."""
