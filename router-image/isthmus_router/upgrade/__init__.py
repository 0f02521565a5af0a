"""Inter-router connection upgrade: new connections take over from old ones without disturbing what is under way."""
