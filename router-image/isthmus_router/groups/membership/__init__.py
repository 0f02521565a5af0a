"""Membership: which members a group has, agreed in a sequence of views; who leads it, who has failed, who is back.

`Membership` is driven by: `join(now)`, `leave(now)`, `found(now, answers)`, `on_frame(now, kind, sender, frame)`,
`heard(now, member)` for every frame of a member, `connection_lost(now, member, refused=...)`,
`suspect(now, member)`, and `on_time(now)` when its `deadline` is due. What it asks and tells is `MembershipUser`.

Every change of view, be it a join, a leave, a crash or a merge of partitions, is one round led by the first member
that is neither suspected nor leaving:

```
 leader                                   every other member of the new view
   PROPOSE(view, views that it knows) ---->  follows no lower proposal from now on
   <---- AGREE(own view, views that the leader lacks, state)
   INSTALL(views that somebody missed ..., new view, baseline) ---->  installs them in order
```
A leader hears of the views that its predecessor has installed from those who have, and completes them before its own:
so the survivors of a view that go on together have all installed the same views between (docs/relay.md).
"""
