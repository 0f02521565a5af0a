module isthmus.dev/tests/cluster/pause

go 1.26
