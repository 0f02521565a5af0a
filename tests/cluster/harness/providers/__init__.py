"""Clusters from elsewhere."""
