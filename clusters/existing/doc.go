// Package existing runs on a cluster that others made and will keep. It works
// in namespaces of its own, undoes whatever it does to nodes, and never starts
// on a cluster that was not named, that is in production, or that lacks what a
// run needs.
package existing
