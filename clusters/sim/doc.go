// Package sim is a cluster that exists only in memory and in virtual time: an
// API server, nodes with CNI plugins, controllers, a user, and the cleaner
// under test as it ships. Every call to the API, every event of a watch and
// every step of the world waits at one gate, and the choices of a simulation
// decide who goes next, so that equal simulations give equal histories, byte
// for byte. It judges nothing.
package sim
