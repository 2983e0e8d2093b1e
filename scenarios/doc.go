// Package scenarios holds the named scenarios, as the files that they are. It
// runs nothing.
package scenarios
