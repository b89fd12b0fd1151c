"""Consumer groups of the mock cluster: members, generations and assignments, as Kafka's group coordinator keeps them.

`ClusterGroups` has the groups and their timers; the groups are pure, and take the time as an argument.
"""
