// Package clusters says what a cluster under test offers: API access, nodes,
// and, as small optional interfaces, the ways in which it can be broken. It
// starts nothing itself; each kind of cluster is a package below.
package clusters
