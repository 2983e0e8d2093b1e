// Package measure names what is measured of a run, and sums up many values. It
// knows no limits and compares nothing.
package measure
