"""`isthmus flows`: what flowed through a network on this machine."""
