// Package nemesis applies faults through the capabilities that a cluster
// offers. What the cluster cannot do is skipped and said so, never replaced by
// something else.
package nemesis
