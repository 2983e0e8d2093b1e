// Package nodeimage finds or makes the image that the nodes of a kind cluster
// are started from. It never starts a cluster, and it pulls nothing but the
// image it was asked for: what it builds comes from Debian's packages and from
// the modules in clusters/tools.
package nodeimage
