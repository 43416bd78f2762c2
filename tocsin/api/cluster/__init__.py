"""Questions between the processes of a cluster: what a streams process serves, and how an API process asks."""
