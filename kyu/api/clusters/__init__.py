"""The objects of many clusters: their capacity, and those of KubeStellar."""
