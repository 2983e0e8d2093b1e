// Package reports renders harness results: files for machines, pages and text
// for people, and the progress display while a run goes on. It judges nothing
// and changes no verdict, and nothing it writes asks anybody for anything: a
// page works without a network.
package reports
