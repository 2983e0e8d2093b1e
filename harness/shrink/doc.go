// Package shrink takes a simulation that fails to a small one that fails the
// same way: fewer pods, steps, faults and choices. It does not play: the caller
// tells which of several candidates is the first that still fails.
package shrink
