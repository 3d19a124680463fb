"""The model of the lease protocol (model/lease.pml), its checks and its tests."""
