// Package compare holds runs of a changed tree against runs of a baseline:
// what broke or was mended first, then times and costs by a test of ranks, so
// that noise is not called a regression. It judges no run itself: a verdict
// comes from the checkers or not at all.
package compare
