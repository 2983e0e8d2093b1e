// Package schedule expands a seed into the fully written-out order of what a
// run does: data that can be stored, read and replayed. It touches no cluster
// and no clock, and knows no address.
package schedule
