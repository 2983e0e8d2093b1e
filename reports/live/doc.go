// Package live shows a run while it goes on: to the terminal as numbers, to a
// browser as the growing report, to Prometheus as metrics. It reads what the
// run has written and judges nothing of it.
package live
