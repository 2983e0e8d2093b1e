// Package history is the ordered record of a run: what was done to the
// cluster, what the nodes saw, every committed write and who made it. It
// judges nothing.
package history
