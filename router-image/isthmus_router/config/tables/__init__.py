"""The sections, by subject."""
