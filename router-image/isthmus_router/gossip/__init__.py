"""The gossip router: tells members of a group who else there is, and carries what they cannot send each other."""
