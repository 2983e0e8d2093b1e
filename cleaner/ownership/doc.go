// Package ownership decides whether an endpoint still has an owner. It reads no
// cluster and no clock: the caller brings evidence, policy and the time, so
// that every race is a row in a table.
package ownership
