"""The cluster: the snapshot of its state, the connections to its brokers, and the client's own requests.

`client.ClusterClient` is what the layers above use; `parts` joins the pool, the control route and the metadata cache.
`connection` holds one connection, `dialing` the code that opens one, `metadata` the snapshot of the cluster; `dialing`
and `metadata` do not know each other.
"""
