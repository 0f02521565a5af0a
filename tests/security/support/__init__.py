"""What the attacks share."""
