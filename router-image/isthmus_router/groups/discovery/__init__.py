"""Discovery: who of a group is there, before anything is known of it but its name.

A kind of discovery (`kinds.DiscoveryKind`, one file each) knows where to ask; `ways.Ways` asks by all of them at once,
and `finder.Finder` says what is asked and answered. None of it decides who belongs to the group: membership does.
"""
