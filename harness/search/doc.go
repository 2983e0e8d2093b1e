// Package search runs many simulations in worker processes, one for each core,
// and sums up what they found and what they never reached. It does not know how
// a simulation is played or judged: a worker brings that.
package search
