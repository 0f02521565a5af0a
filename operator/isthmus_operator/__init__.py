"""The Isthmus operator: custom resources become router pods."""
