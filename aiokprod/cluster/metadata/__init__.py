"""The picture of the cluster: the servers to begin with, one Metadata request, the snapshot and when it is renewed."""
