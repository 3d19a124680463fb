"""`fleetlog demo`: the whole product at work on real files, with a robot and Fleetlog itself killed on the way."""
