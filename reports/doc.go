// Package reports renders one harness result: files for machines, text for
// people, and the progress line while a run goes on. It judges nothing and
// changes no verdict.
package reports
