// Package audit compares what one look at a cluster found: pods, endpoints and
// allocated bits must agree, and what does not is named with its reason. It
// reads no cluster and no clock, and it releases nothing: the controller does.
package audit
